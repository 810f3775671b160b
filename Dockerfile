# An image with the server, which has the embedded model in it, and the libraries that it needs at run time.
#
#   docker build -t quire .
#   docker run --rm -p 127.0.0.1:8000:8000 -v /path/to/model.gguf:/models/m.gguf:ro quire serve /models/m.gguf
#
# Runs with a read-only root file system and as any user: --read-only --user 12345:12345. It writes nowhere.
# docs/deploy.md says how to give it keys. tests/container.sh builds and tries it.
# For ARM64: docker buildx build --platform linux/arm64. The compiler runs on the host's own processor either way.
FROM --platform=$BUILDPLATFORM debian:bookworm-slim AS build
ARG TARGETARCH
RUN dpkg --add-architecture "$TARGETARCH" \
 && case $TARGETARCH in amd64) echo x86_64-linux-gnu ;; arm64) echo aarch64-linux-gnu ;; esac >/triplet \
 && apt-get update \
 && apt-get install -y --no-install-recommends "gcc-$(tr _ - </triplet)" cmake ninja-build pkg-config \
        "libc6-dev:$TARGETARCH" "libmicrohttpd-dev:$TARGETARCH" "libgnutls28-dev:$TARGETARCH" "libjansson-dev:$TARGETARCH" "libuv1-dev:$TARGETARCH" \
        "libpcre2-dev:$TARGETARCH" "libutf8proc-dev:$TARGETARCH" \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN export PKG_CONFIG_LIBDIR="/usr/lib/$(cat /triplet)/pkgconfig" \
 && cmake -G Ninja -B /build -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr/local \
        -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR="$(sed 's/-.*//' /triplet)" -DCMAKE_C_COMPILER="$(cat /triplet)-gcc" \
        -DQUIRE_TESTS=OFF -DQUIRE_EXAMPLES=OFF \
 && cmake --build /build \
 && DESTDIR=/out cmake --install /build --strip --component Unspecified

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends libmicrohttpd12 libgnutls30 libjansson4 libuv1 libpcre2-8-0 libutf8proc2 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/debconf /var/log/apt /var/log/dpkg.log
COPY --from=build /out/usr/local/ /usr/local/
# A number, so that an orchestrator can see that it is not root; it needs no name.
USER 65532:65532
# Every address of the container; the health check asks the same port on the container's own. Other flags likewise.
ENV QUIRE_HOST=0.0.0.0 QUIRE_PORT=8000
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=120s --retries=3 CMD ["quire", "health"]
ENTRYPOINT ["quire"]
CMD ["serve"]
