"""What kserve's own client says of a server, as JSON; runs with the Python of an environment that has kserve: URL MODEL."""

import asyncio
import json
import sys

import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig


async def main(url: str, model: str) -> None:
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    said = {
        "live": await client.is_server_live(url),
        "ready": await client.is_server_ready(url),
        "model ready": await client.is_model_ready(url, model),
    }
    table = np.array([[1.5, 1], [-2, 0]], np.float32)
    for name, binary in (("json", False), ("binary", True)):
        given = InferInput("table", list(table.shape), "FP32")
        given.set_data_from_numpy(table, binary_data=binary)
        request = InferRequest(
            model, [given], request_id=name, parameters={"binary_data_output": binary}
        )
        answer = await client.infer(url, request, model_name=model)
        output = answer.outputs[0]
        said[name] = [answer.id, answer.model_name, output.name, output.as_numpy().tolist()]
    await client.close()
    print(json.dumps(said))


asyncio.run(main(*sys.argv[1:]))
