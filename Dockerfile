# Three images from one file (make images):
#   steps    the pipeline's steps: kfp, the Kubernetes clients, minio, pyarrow, onnxruntime; no torch
#   serve    podium serve: minio, pyarrow, onnxruntime and a web server; no kfp, no Kubernetes clients
#   trainer  the trainer in every pod and trial: torch as well
# Nothing secret and no data inside; runs as any user, also with a read-only root where /tmp is a volume.
# A tag moves. To build from one image for good, give its digest, which `docker pull python:3.11-slim` prints:
# make images BUILD_ARGS="--build-arg BASE=python:3.11-slim@sha256:…"
ARG BASE=python:3.11-slim

# Further packages for each image, beside the pins: make images BUILD_ARGS="--build-arg EXTRAS=mlflow-skinny"
ARG EXTRAS=

FROM ${BASE} AS base
ENV HOME=/tmp LANG=C.UTF-8 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# Kubeflow Pipelines 2.0 keeps a step's files below these, as the step's user; later servers mount volumes there.
RUN mkdir -p /minio /s3 /gcs && chmod 1777 /minio /s3 /gcs
WORKDIR /opt/podium

# Packages and podium are installed below /packages and /podium: what is removed again is in no layer of steps and serve.
FROM base AS builder
RUN command -v strip || { apt-get update && apt-get install -y --no-install-recommends binutils; }

FROM builder AS steps-packages
COPY requirements requirements
COPY scripts/pins scripts/slim-packages scripts/
# The pins are whole and have hashes: nothing is resolved and nothing else is taken.
RUN python3 scripts/pins steps >/tmp/pins.txt && \
    pip install --no-compile --ignore-installed --no-deps --require-hashes --root /packages -r /tmp/pins.txt && \
    scripts/slim-packages --steps /packages

FROM builder AS podium
COPY . .
RUN awk '/^[^ ]/ { keep = /^setuptools==/ } keep' requirements/pins.txt >/tmp/build.txt && \
    pip install --no-deps --require-hashes -r /tmp/build.txt && \
    pip install --no-deps --no-build-isolation --root /podium .

FROM steps-packages AS steps-compiled
COPY --from=podium /podium /podium
COPY scripts/compile-steps ./
RUN PYTHONPATH=$(echo /packages/usr/local/lib/python3*/*-packages):$(echo /podium/usr/local/lib/python3*/*-packages) \
    python3 compile-steps /packages

FROM base AS steps
COPY --from=steps-compiled /packages /
COPY requirements/steps.txt ./
ARG EXTRAS
RUN [ -z "$EXTRAS" ] || pip install -c steps.txt $EXTRAS
COPY --from=podium /podium /
ARG CODE_VERSION=
ENV PODIUM_CODE_VERSION=${CODE_VERSION}
USER 1000:1000

FROM builder AS serve-packages
COPY requirements requirements
COPY scripts/pins scripts/slim-packages scripts/
RUN python3 scripts/pins serve >/tmp/pins.txt && \
    pip install --no-compile --ignore-installed --no-deps --require-hashes --root /packages -r /tmp/pins.txt && \
    scripts/slim-packages --serve /packages

FROM serve-packages AS serve-compiled
COPY --from=podium /podium /podium
COPY scripts/compile-steps ./
RUN PYTHONPATH=$(echo /packages/usr/local/lib/python3*/*-packages):$(echo /podium/usr/local/lib/python3*/*-packages) \
    python3 compile-steps --serve /packages

FROM base AS serve
COPY --from=serve-compiled /packages /
COPY requirements/serve.txt ./
ARG EXTRAS
RUN [ -z "$EXTRAS" ] || pip install -c serve.txt $EXTRAS
COPY --from=podium /podium /
USER 1000:1000
EXPOSE 8080

FROM builder AS trainer-packages
# Index of PyTorch wheels without CUDA, or for another CUDA; empty takes those of the default index, with CUDA.
ARG TORCH_INDEX=
# Anything keeps CUDA's libraries of the default index; without, what no pod without a GPU runs is left out (scripts/cpu-torch).
ARG GPU=
COPY requirements requirements
COPY scripts/pins scripts/slim-packages scripts/cpu-torch scripts/
# The wheels of an index are built anew under the same version: the hashes of the pins are not theirs.
RUN python3 scripts/pins trainer >/tmp/pins.txt && install="pip install --no-compile --ignore-installed --no-deps --root /packages" && \
    packages=/packages/usr/local/lib/python3*/*-packages && \
    if [ -n "$TORCH_INDEX" ]; then \
      awk '/^[^ ]/ { drop = /^(torch|torchvision|triton|nvidia-.*|cuda-.*)==/ } !drop' /tmp/pins.txt >/tmp/rest.txt && \
      grep -Eo '^(torch|torchvision)==[^ ]+' /tmp/pins.txt >/tmp/torch.txt && \
      $install --require-hashes -r /tmp/rest.txt && $install --index-url "$TORCH_INDEX" -r /tmp/torch.txt; \
    elif [ -n "$GPU" ] || [ "$(uname -m)" != x86_64 ]; then $install --require-hashes -r /tmp/pins.txt; else \
      awk '/^[^ ]/ { drop = /^(triton|nvidia-.*|cuda-.*)==/ && !/^nvidia-(cuda-runtime|cuda-cupti|cufile)==/ } !drop' \
        /tmp/pins.txt >/tmp/rest.txt && \
      $install --require-hashes -r /tmp/rest.txt && scripts/cpu-torch $packages; fi && \
    scripts/slim-packages --trainer /packages

FROM base AS trainer
COPY --from=trainer-packages /packages /
COPY requirements/trainer.txt ./
ARG EXTRAS
RUN [ -z "$EXTRAS" ] || pip install -c trainer.txt $EXTRAS
COPY . .
RUN pip install --no-deps --no-build-isolation . && rm -rf build
ARG CODE_VERSION=
ENV PODIUM_CODE_VERSION=${CODE_VERSION}
USER 1000:1000
