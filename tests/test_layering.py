"""The rules that keep the packages apart: who may import what, and nothing that unpickles."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted([*ROOT.glob("tcl/**/*.py"), *ROOT.glob("flows/**/*.py")])
# third party -> the folders whose files alone may import it
OWNERS = {
    "prefect": "flows",
    "tvm": "tcl/compiler",
    "mlflow": "tcl/registry",
    "dvc": "tcl/versioning",
    "starlette": "tcl/webhook",
    "uvicorn": "tcl/webhook",
    "click": "tcl/cli",
}
FORBIDDEN = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
HEAVY = {
    "torch", "tvm", "mlflow", "dvc", "prefect", "onnx", "onnxruntime", "pyarrow", "sklearn", "pandas",
    "numpy", "rich", "scipy", "matplotlib",
}  # fmt: skip


def imported_modules(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
    return names


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_module_imports_only_what_its_package_owns(path):
    packages = {name.split(".")[0] for name in imported_modules(ast.parse(path.read_text()))}
    foreign = {
        name
        for name, owner in OWNERS.items()
        if name in packages and Path(owner) not in path.relative_to(ROOT).parents
    }
    assert not foreign
    assert not packages & FORBIDDEN


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_module_calls_no_loader_that_unpickles(path):
    calls = {
        ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
    }
    assert (
        not calls & {"torch.load", "torch.save", "np.load", "numpy.load"}
        or "allow_pickle=False" in path.read_text()
    )
    assert "allow_pickle=True" not in path.read_text()


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_module_imports_only_lower_layers(path):
    layers = [
        {"flows"},
        {"tcl.jobs"},
        {
            "tcl.registry",
            "tcl.webhook",
            "tcl.versioning",
            "tcl.compiler",
            "tcl.measuring",
            "tcl.distillation",
        },
        {"tcl.costmodel", "tcl.sampling", "tcl.features", "tcl.records", "tcl.importers", "tcl.devices"},
        {
            "tcl.settings",
            "tcl.fields",
            "tcl.files",
            "tcl.ports",
            "tcl.errors",
            "tcl.console",
            "tcl.farm",
            "tcl.processes",
            "tcl.scratch",
        },
    ]
    own = ".".join(path.relative_to(ROOT).with_suffix("").parts[:2])
    position = next(
        (index for index, layer in enumerate(layers) if own in layer or own.split(".")[0] in layer), None
    )
    if position is None:  # the command line and the benchmarks stand above
        return
    above = set().union(*layers[:position]) | {"tcl.cli", "tcl.bench"}
    used = {".".join(name.split(".")[:2]) for name in imported_modules(ast.parse(path.read_text()))}
    used |= {name.split(".")[0] for name in used}
    assert not used & above


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_module_can_be_read_in_one_sitting(path):
    assert len(path.read_text().splitlines()) <= 350


def test_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from tcl.cli.commands import cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        "print(' '.join(sorted({name.split('.')[0] for name in sys.modules})), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert not HEAVY & set(done.stderr.split())
