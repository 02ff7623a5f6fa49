#!/bin/sh
# Runs a package that was cross-compiled for aarch64 under QEMU, with TVM's own aarch64 wheel, and compares its results
# with onnxruntime's: sh tests/emulation/check.sh PACKAGE.  Needs Debian's apt (no root), dpkg, unzip and 1 GB of disk.
set -eu
package=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
python=${PYTHON:-python}
work=${WORK:-build/emulation}
mkdir -p "$work"
work=$(realpath "$work")
root=$work/root

if [ ! -e "$work/.complete" ]; then
    mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/debs" "$work/site" "$root"
    touch "$work/apt/status"
    arm64="-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State=$work/apt -o Dir::Cache=$work/apt/cache
           -o Dir::State::status=$work/apt/status"
    (
        cd "$work/debs"
        apt-get $arm64 update -qq
        apt-get $arm64 download -qq python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libgcc-s1 \
            libstdc++6 zlib1g libexpat1 libffi8 libssl3 libbz2-1.0 liblzma5 libuuid1 libcrypt1
        apt-get download -qq qemu-user-static
        for file in *.deb; do dpkg-deb -x "$file" "$root"; done
    )
    $python -m pip download --quiet --no-deps --only-binary :all: --python-version 3.11 \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --dest "$work/wheels" \
        -c "$here/../../constraints.txt" apache-tvm apache-tvm-ffi numpy ml_dtypes typing_extensions
    for wheel in "$work"/wheels/*.whl; do unzip -q -o "$wheel" -d "$work/site"; done
    touch "$work/.complete"
fi

$python "$here/results.py" expected "$package" "$work/expected.npz"
"$root/usr/bin/qemu-aarch64-static" -L "$root" \
    -E LD_LIBRARY_PATH="$root/usr/lib/aarch64-linux-gnu:$root/lib/aarch64-linux-gnu" -E PYTHONHOME="$root/usr" \
    -E PYTHONPATH="$work/site:$(realpath "$here/../..")" "$root/usr/bin/python3.11" -S \
    "$here/results.py" compare "$package" "$work/expected.npz"
