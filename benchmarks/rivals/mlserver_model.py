"""The shortest model that MLServer takes: `python mlserver_model.py NAME MODEL.onnx PORT`."""

import asyncio
import sys

import onnxruntime
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.settings import ModelParameters
from mlserver.types import InferenceRequest, InferenceResponse


class Onnx(MLModel):
    """Runs a graph with one thread, on one request at a time."""

    async def load(self) -> bool:
        """Open the graph."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        uri = self.settings.parameters.uri
        self.session = onnxruntime.InferenceSession(
            uri, options, providers=["CPUExecutionProvider"]
        )
        self.names = [output.name for output in self.session.get_outputs()]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer tensors with tensors."""
        inputs = {tensor.name: NumpyCodec.decode_input(tensor) for tensor in payload.inputs}
        results = self.session.run(self.names, inputs)
        outputs = [
            NumpyCodec.encode_output(name, array)
            for name, array in zip(self.names, results, strict=True)
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)


async def main(name: str, file: str, port: int) -> None:
    """Serve one model in this process: with one core, workers of its own would only be in the way."""
    settings = Settings(
        http_port=port, grpc_port=port + 1, metrics_port=port + 2, parallel_workers=0, debug=False
    )
    model = ModelSettings(name=name, implementation=Onnx, parameters=ModelParameters(uri=file))
    await MLServer(settings).start([model])


if __name__ == "__main__":
    called, path, number = sys.argv[1:]
    asyncio.run(main(called, path, int(number)))
