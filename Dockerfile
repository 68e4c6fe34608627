# syntax=docker/dockerfile:1
# The operator's image: its three programs, static, on an empty base, as user 65532.
# `docker build -t ghcr.io/etcd-operator/etcd-operator:0.1.0 .`
#
# To get the same bytes from the same commit, say how old its files are to be:
#   export SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
#   docker buildx build --output type=oci,rewrite-timestamp=true,dest=image.tar .
# The lock file fixes every crate and the first base image the compiler. Which base images a release was built on is in its provenance.

# The toolchain that rust-toolchain.toml pins; a test keeps the two in step.
FROM rust:1.95.0-bookworm AS build
RUN apt-get update \
 && apt-get install --yes --no-install-recommends protobuf-compiler libprotobuf-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# What is copied into the image is as old as this says.
ARG SOURCE_DATE_EPOCH=0
# Naming the target keeps build scripts and procedural macros, which cannot be static, out of RUSTFLAGS' reach.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    target="$(rustc -vV | sed -n 's/^host: //p')" \
 && RUSTFLAGS="-C target-feature=+crt-static -C relocation-model=static" cargo build --release --locked --target "$target" \
      --package etcd-operator-webhook --package etcd-operator-controller --package etcd-operator-agent --bins \
 && mkdir /out \
 && cp "target/$target/release/etcd-operator-webhook" "target/$target/release/etcd-operator-controller" \
      "target/$target/release/etcd-operator-agent" /out/ \
 && touch --date="@$SOURCE_DATE_EPOCH" /out/*

FROM gcr.io/distroless/static-debian12:nonroot
LABEL org.opencontainers.image.title="etcd-operator" \
      org.opencontainers.image.description="Runs etcd clusters on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/ /
# By number: the kubelet cannot tell that a named user is not root.
USER 65532:65532
# Three programs, one image: the chart says which one runs, and the controller what its pods run.
