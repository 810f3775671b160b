# An image with the server, which has the embedded model in it, its load-testing client, and the C library; no shell, nothing else.
#
#   docker build -t quire .
#   docker run --rm -p 127.0.0.1:8000:8000 -v /path/to/model.gguf:/models/m.gguf:ro quire serve /models/m.gguf
#
# Runs with a read-only root file system and as any user: --read-only --user 12345:12345. It writes nowhere.
# docs/deploy.md says how to give it keys. tests/container.sh builds and tries it.
# For ARM64: docker buildx build --platform linux/arm64. The compiler runs on the host's own processor either way.
FROM --platform=$BUILDPLATFORM debian:bookworm-slim AS build
ARG TARGETARCH
ARG DEBIAN_MIRROR=http://deb.debian.org/debian
RUN dpkg --add-architecture "$TARGETARCH" \
 && case $TARGETARCH in amd64) echo x86_64 ;; arm64) echo aarch64 ;; esac >/arch \
 && apt-get update \
 && apt-get install -y --no-install-recommends "gcc-$(tr _ - </arch)-linux-gnu" cmake ninja-build pkg-config make dpkg-dev python3 \
        $([ "$TARGETARCH" = "$(dpkg --print-architecture)" ] || echo qemu-user)
WORKDIR /src
COPY . .
RUN packaging/portable.sh "$(cat /arch)" /packed
# The program's own libraries are in it. These it loads; they are Debian 12's, not those that it was linked against.
RUN mkdir -p /libc /image/usr/local \
 && apt-get download "libc6:$TARGETARCH" \
 && dpkg-deb -x libc6_*.deb /libc \
 && tar -xf /packed/*.tar.gz -C /image/usr/local --strip-components=1 --exclude='*/share/man' --exclude='*/share/*completion*' --exclude='*/share/zsh' \
 && cd /libc \
 && cp -a --parents lib*/ld-linux* lib/*/ld-linux* lib/*/lib[cm].so.6 lib/*/libdl.so.2 lib/*/libpthread.so.0 lib/*/librt.so.1 usr/share/doc/libc6/copyright /image

FROM scratch
COPY --from=build /image /
ENV PATH=/usr/local/bin
# A number, so that an orchestrator can see that it is not root; it needs no name.
USER 65532:65532
# Every address of the container; the health check asks the same port on the container's own. Other flags likewise.
ENV QUIRE_HOST=0.0.0.0 QUIRE_PORT=8000
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=120s --retries=3 CMD ["quire", "health"]
ENTRYPOINT ["quire"]
CMD ["serve"]
