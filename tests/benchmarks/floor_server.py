"""The floor: the least that answers an inference over HTTP, with nothing that a service needs.

`floor_server.py MODEL.onnx INPUT OUTPUT [CERTIFICATE KEY]` prints its port and serves any POST.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from pathlib import Path

import httptools
import numpy as np
import onnxruntime as ort
import orjson
import uvloop


class Floor(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data):
        self.parser.feed_data(data)

    def on_message_begin(self):
        self.body = b""

    def on_body(self, body):
        self.body += body

    def on_message_complete(self):
        item = orjson.loads(self.body)["inputs"][0]
        array = np.array(item["data"], dtype=np.float32).reshape(item["shape"])
        (out,) = SESSION.run([OUTPUT], {INPUT: array})
        tensor = {"name": OUTPUT, "datatype": "FP32", "shape": out.shape, "data": out.ravel()}
        body = orjson.dumps({"outputs": [tensor]}, option=orjson.OPT_SERIALIZE_NUMPY)
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body)
        )


async def main(files: list[str]) -> None:
    context = None
    if files:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(*files)
    server = await asyncio.get_running_loop().create_server(Floor, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


MODEL, INPUT, OUTPUT, *FILES = sys.argv[1:]
OPTIONS = ort.SessionOptions()
OPTIONS.intra_op_num_threads = 1
SESSION = ort.InferenceSession(Path(MODEL).read_bytes(), OPTIONS)
uvloop.run(main(FILES))
