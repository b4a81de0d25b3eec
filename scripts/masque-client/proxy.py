"""A MASQUE proxy that shares no code with Bentpipe: HTTP/3 by aioquic, CONNECT and CONNECT-UDP.

It serves on a free port of 127.0.0.1, prints that, and ends with its standard input. Requests without the right
`proxy-authorization` are answered 407, and fields that no standard has are refused with 400.
"""

import argparse
import asyncio
import sys
from urllib.parse import unquote

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.buffer import Buffer, encode_uint_var
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, DatagramReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated, StreamReset

MAX_READ_BYTES = 16384
# Fields of CONNECT (RFC 9114, section 4.4) and CONNECT-UDP (RFC 9298, section 3.2), and the authorization.
STANDARD = {":method", ":authority", ":protocol", ":scheme", ":path", "capsule-protocol", "proxy-authorization"}


class Datagrams(asyncio.DatagramProtocol):
    """The UDP socket of a flow."""

    def __init__(self, proxy, stream):
        self.proxy, self.stream = proxy, stream

    def datagram_received(self, data, _):
        self.proxy.http.send_datagram(self.stream, encode_uint_var(0) + data)
        self.proxy.transmit()


class Proxy(QuicConnectionProtocol):
    """A client's connection and its flows."""

    def __init__(self, *args, authorization, **kwargs):
        super().__init__(*args, **kwargs)
        self.authorization = authorization
        self.http = None
        # What a client sends on a stream before and after its destination is connected.
        self.sent = {}
        self.sockets = {}
        self.tasks = set()

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            # aioquic announces SETTINGS_ENABLE_CONNECT_PROTOCOL and _H3_DATAGRAM together with WebTransport.
            self.http = H3Connection(self._quic, enable_webtransport=True)
        if isinstance(event, StreamReset) and event.stream_id in self.sent:
            self.sent[event.stream_id].put_nowait((b"", True))
        for found in self.http.handle_event(event) if self.http else []:
            self.handle(found)

    def handle(self, event):
        if isinstance(event, HeadersReceived):
            self.sent[event.stream_id] = asyncio.Queue()
            fields = {name.decode(): value.decode() for name, value in event.headers}
            task = asyncio.ensure_future(self.serve(event.stream_id, fields))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        elif isinstance(event, DataReceived):
            self.sent[event.stream_id].put_nowait((event.data, event.stream_ended))
        elif isinstance(event, DatagramReceived) and event.stream_id in self.sockets:
            buffer = Buffer(data=event.data)
            if buffer.pull_uint_var() == 0:
                self.sockets[event.stream_id].sendto(event.data[buffer.tell():])

    def answer(self, stream, status, ended=False):
        self.http.send_headers(stream, [(b":status", str(status).encode())], end_stream=ended)
        self.transmit()

    async def serve(self, stream, fields):
        if fields.get("proxy-authorization") != self.authorization:
            self.answer(stream, 407, ended=True)
        elif not set(fields) <= STANDARD:
            self.answer(stream, 400, ended=True)
        elif fields.get(":protocol") == "connect-udp":
            _, _, _, _, host, port, _ = fields[":path"].split("/")
            loop = asyncio.get_running_loop()
            made = loop.create_datagram_endpoint(lambda: Datagrams(self, stream), remote_addr=(unquote(host), int(port)))
            self.sockets[stream], _ = await made
            self.answer(stream, 200)
        else:
            await self.tunnel(stream, *fields[":authority"].rsplit(":", 1))

    async def tunnel(self, stream, host, port):
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            return self.answer(stream, 502, ended=True)
        self.answer(stream, 200)
        await asyncio.gather(self.upload(stream, writer), self.download(stream, reader))

    async def upload(self, stream, writer):
        ended = False
        while not ended:
            data, ended = await self.sent[stream].get()
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def download(self, stream, reader):
        while data := await reader.read(MAX_READ_BYTES):
            self.http.send_data(stream, data, end_stream=False)
            self.transmit()
        self.http.send_data(stream, b"", end_stream=True)
        self.transmit()


async def main(options):
    configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN, max_datagram_frame_size=65536)
    configuration.load_cert_chain(options.certificate, options.key)
    with open(options.authorization_file, encoding="ascii") as file:
        authorization = file.read().strip()
    server = await serve(
        "127.0.0.1", 0, configuration=configuration,
        create_protocol=lambda *args, **kwargs: Proxy(*args, authorization=authorization, **kwargs),
    )
    print(server._transport.get_extra_info("sockname")[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--certificate", required=True, metavar="FILE", help="PEM")
    parser.add_argument("--key", required=True, metavar="FILE", help="PEM")
    parser.add_argument("--authorization-file", required=True, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(parse()))
