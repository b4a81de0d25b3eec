"""A MASQUE client that shares no code with Bentpipe: HTTP/3 by aioquic, CONNECT-UDP by RFC 9298.

It makes one request through a proxy, sends each line of its input as one datagram (or, with
`connect`, as bytes of one stream) and prints what came back as one line of JSON:

    {"status": 200, "fields": {...}, "received": ["..."]}

It waits for as many datagrams, or bytes, as it sent. Where the proxy refuses (an answer that is not
2xx) it prints that too and exits with 3.
"""

import argparse
import asyncio
import base64
import json
import ssl
import sys
from urllib.parse import quote

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.buffer import Buffer, BufferReadError, encode_uint_var
from aioquic.h3.connection import H3_ALPN, H3Connection, Setting
from aioquic.h3.events import DataReceived, DatagramReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, ProtocolNegotiated, StreamReset

DATAGRAM_CAPSULE = 0

# What it exits with where the proxy refuses; 1 is for everything that went wrong.
REFUSED = 3


class Client(QuicConnectionProtocol):
    """One connection, and the request on it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = None
        self.events = asyncio.Queue()

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            # aioquic announces SETTINGS_H3_DATAGRAM together with WebTransport.
            datagrams = self._quic.configuration.max_datagram_frame_size is not None
            self.http = H3Connection(self._quic, enable_webtransport=datagrams)
        if isinstance(event, (ConnectionTerminated, StreamReset)):
            self.events.put_nowait(event)
        if self.http is not None:
            for found in self.http.handle_event(event):
                self.events.put_nowait(found)

    async def settings(self):
        while self.http is None or self.http.received_settings is None:
            await asyncio.sleep(0.01)
        return self.http.received_settings

    def request(self, fields):
        stream = self._quic.get_next_available_stream_id()
        self.http.send_headers(stream, [(n.encode(), v.encode()) for n, v in fields])
        self.transmit()
        return stream

    async def next(self):
        event = await self.events.get()
        if isinstance(event, (ConnectionTerminated, StreamReset)):
            raise SystemExit(f"the proxy ended it: {event}")
        return event

    async def answer(self):
        while True:
            event = await self.next()
            if isinstance(event, HeadersReceived):
                fields = [(n.decode(), v.decode()) for n, v in event.headers]
                return int(dict(fields)[":status"]), fields


def authorization(options):
    """A command line can be read by every user of the machine, so the token is in a file."""
    if options.token_file is None:
        return []
    with open(options.token_file, encoding="ascii") as file:
        token = file.read().strip()
    if options.user is None:
        return [("proxy-authorization", f"Bearer {token}")]
    pair = base64.b64encode(f"{options.user}:{token}".encode()).decode()
    return [("proxy-authorization", f"Basic {pair}")]


async def tunnel(client, options, lines):
    """CONNECT (RFC 9114, section 4.4)."""
    fields = [(":method", "CONNECT"), (":authority", f"{options.host}:{options.port}")]
    stream = client.request(fields + authorization(options))
    status, fields = await client.answer()
    received = b""
    if status // 100 == 2:
        sent = b"".join(lines)
        client.http.send_data(stream, sent, end_stream=True)
        client.transmit()
        ended = False
        while not ended:
            event = await client.next()
            if isinstance(event, DataReceived):
                received += event.data
                ended = event.stream_ended
    return status, fields, [received.decode()]


async def udp(client, options, lines):
    """CONNECT-UDP (RFC 9298, section 3)."""
    settings = await client.settings()
    assert settings[Setting.ENABLE_CONNECT_PROTOCOL] == 1, settings
    path = f"/.well-known/masque/udp/{quote(options.host, safe='')}/{options.port}/"
    fields = [
        (":method", "CONNECT"),
        (":protocol", "connect-udp"),
        (":scheme", "https"),
        (":authority", options.server_name),
        (":path", path),
        ("capsule-protocol", "?1"),
    ]
    stream = client.request(fields + authorization(options))
    status, fields = await client.answer()
    received, capsules = [], b""
    if status // 100 == 2:
        for line in lines:
            payload = encode_uint_var(0) + line
            if options.capsules:
                capsule = encode_uint_var(DATAGRAM_CAPSULE) + encode_uint_var(len(payload)) + payload
                client.http.send_data(stream, capsule, end_stream=False)
            else:
                client.http.send_datagram(stream, payload)
        client.transmit()
        while len(received) < len(lines):
            event = await client.next()
            if isinstance(event, DatagramReceived):
                assert not options.capsules and event.stream_id == stream, event
                received.append(udp_payload(event.data))
            elif isinstance(event, DataReceived):
                values, capsules = datagram_capsules(capsules + event.data)
                received += [udp_payload(value) for value in values]
    return status, fields, received


def udp_payload(datagram):
    buffer = Buffer(data=datagram)
    context = buffer.pull_uint_var()
    assert context == 0, context
    return datagram[buffer.tell():].decode()


def datagram_capsules(data):
    """The values of the DATAGRAM capsules in `data`, and the bytes of one that is not complete."""
    values = []
    while data:
        buffer = Buffer(data=data)
        try:
            kind, length = buffer.pull_uint_var(), buffer.pull_uint_var()
            value = buffer.pull_bytes(length)
        except BufferReadError:
            break
        if kind == DATAGRAM_CAPSULE:
            values.append(value)
        data = data[buffer.tell():]
    return values, data


async def main(options):
    configuration = QuicConfiguration(
        is_client=True,
        alpn_protocols=H3_ALPN,
        server_name=options.server_name,
        cafile=options.ca,
        verify_mode=ssl.CERT_REQUIRED,
        max_datagram_frame_size=None if options.capsules else 65536,
    )
    lines = [line.encode() for line in sys.stdin.read().splitlines()]
    host, port = options.proxy.rsplit(":", 1)
    async with connect(
        host, int(port), configuration=configuration, create_protocol=Client
    ) as client:
        ask = udp if options.method == "connect-udp" else tunnel
        status, fields, received = await ask(client, options, lines)
    print(json.dumps({"status": status, "fields": fields, "received": received}))
    return 0 if status // 100 == 2 else REFUSED


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--proxy", required=True, metavar="HOST:PORT")
    parser.add_argument("--server-name", required=True, help="the name in the proxy's certificate")
    parser.add_argument("--ca", required=True, metavar="FILE", help="whom to believe, PEM")
    parser.add_argument("--token-file", metavar="FILE", help="shown as a Bearer token")
    parser.add_argument("--user", metavar="NAME", help="shown with the token, as Basic")
    parser.add_argument("--capsules", action="store_true", help="no QUIC datagrams")
    parser.add_argument("method", choices=["connect", "connect-udp"])
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(asyncio.wait_for(main(parse()), timeout=20)))
