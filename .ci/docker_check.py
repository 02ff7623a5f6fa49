"""Run the steps of the Dockerfile's targets `runtime` and `serve` in a bare Debian, where no docker engine is needed.

The base image is stood in for by `debootstrap` (root and the Debian package of that name are needed). Every RUN, COPY,
ENV, ARG, WORKDIR and USER of a target is carried out in a chroot with processes of its own. Then the CPU image compiles
a small network from nothing, and the runtime image, which must hold neither torch nor MLflow, runs the package. Of the
target `cuda`, whose steps need NVIDIA's image, only the syntax is looked at.

usage: python docker_check.py [FOLDER]    the folder for the images; default: a temporary one, removed afterwards
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON_PACKAGES = "ca-certificates python3.11-venv python3.11-dev"  # what Docker's Python image has
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
LENT_FILES = "/lent"
TINY_MODEL = """
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
widths, nodes, weights = [64, 32, 48, 16], [], []  # three programs: fewer teach no cost model
for n, shape in enumerate(zip(widths, widths[1:])):
    weights.append(numpy_helper.from_array(np.random.default_rng(n).standard_normal(shape, dtype=np.float32), f"w{n}"))
    nodes.append(helper.make_node("MatMul", [f"x{n}", f"w{n}"], [f"p{n}"]))
    nodes.append(helper.make_node("Relu", [f"p{n}"], [f"x{n + 1}"]))
value = lambda name, width: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, width])
graph = helper.make_graph(nodes, "tiny", [value("x0", 64)], [value("x3", 16)], weights)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "tiny.onnx")
"""
SMALL = {
    "TCL_MEASURE_POOL_SIZE": "16",
    "TCL_LEARNING_EPOCHS": "1",
    "TCL_TUNING_POPULATION": "16",
    "TCL_TUNING_TRIALS": "2",
    "TCL_UP_MEASURE_PER_PROGRAM": "8",
    "TCL_UP_MEASURE_SECONDS": "60",
    "TCL_UP_DISTILL_SECONDS": "30",
}


@dataclass
class Image:
    """A stage on its way: its folder and what its instructions have set."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "0"
    entrypoint: list[str] = field(default_factory=list)

    def run(self, command: str, check: bool = True, **extra: str) -> int:
        """Run a shell command in the image, with a /proc and a /sys as an engine mounts them."""
        variables = {
            "HOME": "/root" if self.user == "0" else "/home/tcl",
            "PATH": SYSTEM_PATH,
        }
        variables |= outside() | self.environment | self.arguments | extra
        words = [f"{name}={value}" for name, value in variables.items()]
        binds = f"mount --rbind /dev {self.folder}/dev && "
        for source, place in lent().items():
            target = f"{self.folder}{place}"
            make = f"mkdir -p {Path(target).parent} && touch" if source.is_file() else "mkdir -p"
            # Read-only: what a step writes is the image's own, never this machine's.
            binds += (
                f"{make} {target} && mount --bind {source} {target} && mount -o remount,bind,ro {target} && "
            )
        inner = f"cd {self.workdir} && {command}"
        chroot = [
            "chroot",
            f"--userspec={self.user}:{self.user}",
            str(self.folder),
            "/usr/bin/env",
            "-i",
            *words,
        ]
        script = (
            f"{binds} mount -t proc proc {self.folder}/proc && mount -t sysfs -o ro sysfs {self.folder}/sys"
            ' && exec "$@"'
        )
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", script, "sh", *chroot,
             "/bin/sh", "-c", inner]
        )  # fmt: skip
        if check and done.returncode:
            raise SystemExit(f"failed in {self.folder.name} (exit code {done.returncode}): {command}")
        return done.returncode

    def megabytes(self) -> int:
        return int(subprocess.check_output(["du", "-sxm", str(self.folder)], text=True).split()[0])


def outside() -> dict[str, str]:
    """Pip's settings of this machine, so that the images install from where the machine does."""
    settings = pip_settings()
    for name, value in settings.items():
        files = [word for word in value.split() if word.startswith("/") and Path(word).is_file()]
        for word in files:
            value = value.replace(word, LENT_FILES + word)
        settings[name] = value
    return settings


def lent() -> dict[Path, str]:
    """What pip's settings name of this machine -> where an image finds it.

    Folders keep their paths, since the pages of an index name files by them; an index is lent with what lies beside it.
    Files get paths that no package of Debian's writes to.
    """
    words = [Path(word.removeprefix("file://")) for word in " ".join(pip_settings().values()).split()]
    named = [path for path in words if path.is_absolute() and path.exists()]
    folders = {path.parent if path.name == "simple" else path for path in named if path.is_dir()}
    return {path: str(path) for path in sorted(folders)} | {
        path: f"{LENT_FILES}{path}" for path in named if path.is_file()
    }


def pip_settings() -> dict[str, str]:
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
    settings = re.findall(r"^(?:global|:env:)\.([a-z-]+)='(.*)'$", listed.stdout, re.MULTILINE)
    return {f"PIP_{name.upper().replace('-', '_')}": value.replace("\\n", " ") for name, value in settings}


def stages(text: str) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """Stage name -> (what it starts from, its instructions)."""
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\\\n\s*", " ", text)
    found: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    current: list[tuple[str, str]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            start, _, name = rest.partition(" AS ")
            current = []
            found[name] = (start, current)
        else:
            current.append((word, rest))
    return found


def carry_out(image: Image, instructions: list[tuple[str, str]]) -> None:
    for word, rest in instructions:
        print(f"--- {image.folder.name}: {word} {rest}", flush=True)
        if word == "RUN":
            image.run(rest)
        elif word == "ENV":
            for name, value in re.findall(r"(\w+)=(\S+)", rest):
                for known, text in ({"PATH": SYSTEM_PATH} | image.environment).items():
                    value = value.replace(f"${known}", text)
                image.environment[name] = value
        elif word == "ARG":
            name, _, value = rest.partition("=")
            image.arguments[name] = os.environ.get(name, value)
        elif word == "WORKDIR":
            image.workdir = rest
            (image.folder / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "USER":
            image.user = rest
        elif word == "COPY":
            copy(image, *rest.rsplit(" ", 1))
        elif word == "ENTRYPOINT":
            image.entrypoint = json.loads(rest)


def copy(image: Image, sources: str, target: str) -> None:
    place = image.folder / image.workdir.lstrip("/") / target
    for source in map(ROOT.joinpath, sources.split()):
        if source.is_dir():
            shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, place)


def check_syntax(described: dict[str, tuple[str, list[tuple[str, str]]]]) -> None:
    """Let the shell read the steps of all targets, also of `cuda`, whose steps need NVIDIA's image."""
    for name, (_, instructions) in described.items():
        for word, rest in instructions:
            if word == "RUN" and subprocess.run(["/bin/sh", "-n", "-c", rest]).returncode:
                raise SystemExit(f"no shell can read this step of {name}: {rest}")


def main(folder: Path) -> None:
    described = stages((ROOT / "Dockerfile").read_text())
    check_syntax(described)
    base = Image(folder / "base")
    subprocess.run(
        ["debootstrap", "--variant=minbase", "bookworm", str(base.folder)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for path in ("/etc/resolv.conf", "/etc/hosts"):
        shutil.copy(path, base.folder / path.lstrip("/"))
    install = "apt-get install --yes --quiet --no-install-recommends"
    base.run(f"apt-get update --quiet && {install} {PYTHON_PACKAGES} && rm -rf /var/lib/apt/lists/*")
    report = {"debian with Python": base.megabytes()}
    carry_out(base, described["base"][1])
    made = {}
    for name in ("runtime", "serve"):
        subprocess.run(["cp", "-a", str(base.folder), str(folder / name)], check=True)
        made[name] = Image(folder / name, dict(base.environment), {}, base.workdir)
        start = time.monotonic()
        carry_out(made[name], described[name][1])
        report[name], report[f"{name}_seconds"] = made[name].megabytes(), round(time.monotonic() - start)
    serve, runtime = made["serve"], made["runtime"]
    for image in made.values():
        image.run(" ".join([*image.entrypoint, "--help"]))
    serve.workdir = runtime.workdir = "/tmp"
    serve.run(f"python -c '{TINY_MODEL}' && tcl up tiny.onnx -o package", **SMALL)
    shutil.copytree(serve.folder / "tmp/package", runtime.folder / "tmp/package")
    runtime.run("tcl run package --json")
    for module in ("torch", "mlflow", "prefect", "dvc", "onnxruntime"):
        if runtime.run(f"python -c 'import {module}' 2>/dev/null", check=False) == 0:
            raise SystemExit(f"the runtime image holds {module}")
    print(json.dumps(report))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).absolute())
    else:
        with tempfile.TemporaryDirectory(prefix="tcl-images-") as temporary:
            main(Path(temporary))
