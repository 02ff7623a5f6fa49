# Three images of one project:
#   docker build --target runtime .   runs packages only (no torch, no MLflow, no Prefect)
#   docker build .                    the whole system on a CPU
#   docker build --target cuda .      the same with mamba-ssm's fused kernels, for CUDA machines
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
ARG CUDA_IMAGE=nvidia/cuda:13.0.2-devel-ubuntu24.04

FROM ${PYTHON_IMAGE} AS base
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1
RUN useradd --create-home tcl
WORKDIR /opt/tcl
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY tcl tcl
COPY flows flows

FROM base AS runtime
RUN pip install -c constraints.txt apache-tvm apache-tvm-ffi numpy click rich \
    && pip install --no-deps .
USER tcl
WORKDIR /packages
ENTRYPOINT ["tcl", "run"]

FROM ${CUDA_IMAGE} AS cuda
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1 PATH=/opt/venv/bin:$PATH
RUN apt-get update \
    && apt-get install --yes --no-install-recommends software-properties-common git g++ \
    && add-apt-repository --yes ppa:deadsnakes/ppa \
    && apt-get install --yes --no-install-recommends python3.11-venv python3.11-dev \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home tcl \
    && python3.11 -m venv /opt/venv
WORKDIR /opt/tcl
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY tcl tcl
COPY flows flows
RUN pip install -c constraints.txt . setuptools wheel ninja packaging einops \
    && MAMBA_FORCE_BUILD=TRUE pip install --no-build-isolation --no-deps mamba-ssm==2.3.1
USER tcl
WORKDIR /project
ENTRYPOINT ["tcl"]

# The last stage is what a plain `docker build .` makes.
FROM base AS serve
RUN apt-get update && apt-get install --yes --no-install-recommends git g++ && rm -rf /var/lib/apt/lists/* \
    && pip install -c constraints.txt .
USER tcl
WORKDIR /project
ENTRYPOINT ["tcl"]
