# Three images of one project:
#   docker build --target runtime .   runs packages only (no torch, no MLflow, no Prefect)
#   docker build .                    the whole system on a CPU; serves the flows
#   docker build --target cuda .      the same with mamba-ssm's fused kernels, for CUDA machines
# `make check` lints this file; `make docker-check` runs the steps of the first two in a bare Debian.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
ARG CUDA_IMAGE=nvidia/cuda:13.0.2-devel-ubuntu24.04

FROM ${PYTHON_IMAGE} AS base
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1 PATH=/opt/venv/bin:$PATH
RUN useradd --uid 1000 --create-home tcl && python3.11 -m venv /opt/venv
WORKDIR /opt/tcl
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY tcl tcl
COPY flows flows

FROM base AS runtime
RUN pip install -c constraints.txt apache-tvm apache-tvm-ffi numpy click rich setuptools \
    && pip install --no-deps --no-build-isolation .
USER 1000
WORKDIR /packages
ENTRYPOINT ["tcl", "run"]

FROM ${CUDA_IMAGE} AS cuda
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1 PATH=/opt/venv/bin:$PATH
# The system's packages move with the base image's release; Python's are pinned in constraints.txt.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends software-properties-common git g++ \
    && add-apt-repository --yes ppa:deadsnakes/ppa \
    && apt-get install --yes --no-install-recommends python3.11-venv python3.11-dev \
    && rm -rf /var/lib/apt/lists/* \
    && userdel --remove ubuntu \
    && useradd --uid 1000 --create-home tcl \
    && python3.11 -m venv /opt/venv
WORKDIR /opt/tcl
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY tcl tcl
COPY flows flows
RUN pip install -c constraints.txt '.[scale]' setuptools wheel ninja packaging einops \
    && MAMBA_FORCE_BUILD=TRUE pip install --no-build-isolation --no-deps mamba-ssm==2.3.1
USER 1000
WORKDIR /project
ENTRYPOINT ["tcl"]

# The last stage is what a plain `docker build .` makes. PyPI's torch brings gigabytes of CUDA; to leave them out, name an
# index of torch's builds for CPUs: --build-arg TORCH_INDEX=...
FROM base AS serve
ARG TORCH_INDEX=
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends git g++ && rm -rf /var/lib/apt/lists/* \
    && pip install ${TORCH_INDEX:+--extra-index-url} ${TORCH_INDEX:+"${TORCH_INDEX}"} -c constraints.txt '.[scale]'
USER 1000
WORKDIR /project
ENTRYPOINT ["tcl"]
CMD ["serve"]
