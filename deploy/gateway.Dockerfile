# A gateway in a container: one static program, certificates of authorities, and a user that is not root.
# From the repository's root:
#
#   rustup target add x86_64-unknown-linux-musl                 # and musl-gcc: apt-get install musl-tools
#   cargo build --release -p bentpipe --target x86_64-unknown-linux-musl
#   docker build -f deploy/gateway.Dockerfile --target ground -t bentpipe-ground .
#   docker build -f deploy/gateway.Dockerfile --target air -t bentpipe-air .
#
#   docker run --read-only -v /etc/bentpipe:/etc/bentpipe:ro -v bentpipe:/var/lib/bentpipe \
#       -p 4500:4500/udp bentpipe-ground
#   docker run --read-only -v /etc/bentpipe:/etc/bentpipe:ro -v bentpipe:/var/lib/bentpipe \
#       --network host --cap-drop ALL --cap-add NET_ADMIN --cap-add NET_RAW --cap-add NET_BIND_SERVICE \
#       bentpipe-air
#
# The files in /etc/bentpipe belong to user 64500, the keys with mode 600. In them state-file is
# "/var/lib/bentpipe/air.state" or "/var/lib/bentpipe/ground.state". The gateway of the air image does not
# start without its three capabilities: the program's file has them, because a user that is not root gets no
# others in a container.
#
# There is no health check. A gateway whose driver fails ends with an error, and Docker starts it again
# (--restart=always).
FROM debian:bookworm-slim AS parts
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends ca-certificates libcap2-bin \
    && mkdir -p /empty/state && chown 64500:64500 /empty/state && chmod 700 /empty/state
COPY target/x86_64-unknown-linux-musl/release/bentpipe /bentpipe
COPY target/x86_64-unknown-linux-musl/release/bentpipe /bentpipe-air
RUN setcap cap_net_admin,cap_net_raw,cap_net_bind_service=ep /bentpipe-air

FROM scratch AS base
COPY --from=parts /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=parts --chown=64500:64500 /empty/state /var/lib/bentpipe
USER 64500:64500
WORKDIR /var/lib/bentpipe
VOLUME /var/lib/bentpipe
STOPSIGNAL SIGTERM

FROM base AS ground
COPY --from=parts /bentpipe /bentpipe
ENTRYPOINT ["/bentpipe", "ground", "--config", "/etc/bentpipe/ground.toml"]

FROM base AS air
COPY --from=parts /bentpipe-air /bentpipe
ENTRYPOINT ["/bentpipe", "air", "--config", "/etc/bentpipe/air.toml"]
