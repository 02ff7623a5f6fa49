#!/bin/sh
# Runs a package that was cross-compiled for aarch64 under QEMU, with TVM's own aarch64 wheel, and compares its results
# with onnxruntime's: sh tests/emulation/check.sh [PACKAGE].  Without PACKAGE, SqueezeNet is compiled first, by a cost
# model of a few measurements.  Needs Debian's apt (no root), dpkg, unzip and 1 GB of disk; takes two minutes
# beside the downloads.
set -eu
here=$(realpath "$(dirname "$0")")
python=$(realpath -s "${PYTHON:-$(command -v python)}")
work=${WORK:-build/emulation}
mkdir -p "$work"
work=$(realpath "$work")
root=$work/root

if [ ! -e "$work/.complete" ]; then
    mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/debs" "$work/site" "$root"
    touch "$work/apt/status"
    arm64="-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State=$work/apt -o Dir::Cache=$work/apt/cache
           -o Dir::State::status=$work/apt/status -o APT::Sandbox::User=$(id -un)"
    (
        cd "$work/debs"
        apt-get $arm64 update -qq
        apt-get $arm64 download -qq python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libgcc-s1 \
            libstdc++6 zlib1g libexpat1 libffi8 libssl3 libbz2-1.0 liblzma5 libuuid1 libcrypt1
        apt-get -o APT::Sandbox::User="$(id -un)" download -qq qemu-user-static
        for file in *.deb; do dpkg-deb -x "$file" "$root"; done
    )
    $python -m pip download --quiet --no-deps --only-binary :all: --python-version 3.11 \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --dest "$work/wheels" \
        -c "$here/../../constraints.txt" apache-tvm apache-tvm-ffi numpy ml_dtypes typing_extensions
    for wheel in "$work"/wheels/*.whl; do unzip -q -o "$wheel" -d "$work/site"; done
    touch "$work/.complete"
fi

if [ $# -gt 0 ]; then
    package=$(realpath "$1")
else
    package=$work/project/package
    rm -rf "$work/project"
    mkdir "$work/project"
    (
        cd "$work/project"
        tcl() { "$(dirname "$python")/tcl" "$@"; }
        export TCL_ROOT="$PWD" TCL_MEASURE_POOL_SIZE=16 TCL_LEARNING_EPOCHS=1 TCL_TUNING_POPULATION=16
        tcl bench export squeezenet -o .
        tcl device detect --name host
        tcl measure squeezenet.onnx --device host --budget 54 --sampler random
        tcl distill --device host
        tcl device add board \
            --target '{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72", "num-cores": 4}'
        tcl compile squeezenet.onnx --device board --trials 0 -o package
    )
fi

$python "$here/results.py" expected "$package" "$work/expected.npz"
"$root/usr/bin/qemu-aarch64-static" -L "$root" \
    -E LD_LIBRARY_PATH="$root/usr/lib/aarch64-linux-gnu:$root/lib/aarch64-linux-gnu" -E PYTHONHOME="$root/usr" \
    -E PYTHONPATH="$work/site:$(realpath "$here/../..")" "$root/usr/bin/python3.11" -S \
    "$here/results.py" compare "$package" "$work/expected.npz"
