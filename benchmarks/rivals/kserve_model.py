"""The shortest model that kserve's ModelServer takes: `python kserve_model.py NAME MODEL.onnx PORT`."""

import sys

import onnxruntime
from kserve import InferOutput, InferResponse, Model, ModelServer
from kserve.utils.numpy_codec import from_np_dtype


class Onnx(Model):
    """Runs a graph with one thread, on one request at a time."""

    def __init__(self, name: str, file: str) -> None:
        super().__init__(name)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            file, options, providers=["CPUExecutionProvider"]
        )
        self.names = [output.name for output in self.session.get_outputs()]
        self.ready = True

    def predict(self, payload, headers=None, response_headers=None):
        """Answer tensors with tensors, in binary."""
        results = self.session.run(
            self.names, {tensor.name: tensor.as_numpy() for tensor in payload.inputs}
        )
        outputs = []
        for name, array in zip(self.names, results, strict=True):
            output = InferOutput(name, list(array.shape), from_np_dtype(array.dtype))
            output.set_data_from_numpy(array, binary_data=True)
            outputs.append(output)
        return InferResponse(payload.id or "1", self.name, outputs, use_binary_outputs=True)


if __name__ == "__main__":
    called, path, port = sys.argv[1:]
    server = ModelServer(
        http_port=int(port), workers=1, enable_grpc=False, enable_latency_logging=False
    )
    server.start([Onnx(called, path)])
