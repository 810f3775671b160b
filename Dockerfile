# An image with the server, which has the embedded model in it, and the libraries that it needs at run time.
#
#   docker build -t quire .
#   docker run --rm -p 127.0.0.1:8000:8000 -v /path/to/model.gguf:/models/m.gguf:ro quire serve /models/m.gguf
#
# Runs with a read-only root file system and as any user: --read-only --user 12345:12345. It writes nowhere. README.md says
# how to give it keys. tests/container.sh builds and tries it.
FROM debian:bookworm-slim AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev cmake ninja-build pkg-config \
        libmicrohttpd-dev libjansson-dev libuv1-dev libpcre2-dev libutf8proc-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cmake -G Ninja -B /build -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr/local \
        -DQUIRE_TESTS=OFF -DQUIRE_EXAMPLES=OFF \
 && cmake --build /build \
 && DESTDIR=/out cmake --install /build --strip

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends libmicrohttpd12 libjansson4 libuv1 libpcre2-8-0 libutf8proc2 \
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
