//! The shortest model that furnace-server takes: `furnace-rival NAME MODEL.onnx PORT`; gRPC is on the next port.
//! ORT_DYLIB_PATH names ONNX Runtime's library. One float tensor in and one out; the graph runs with one thread, on one
//! request or batch at a time.

use std::sync::Mutex;

use furnace::{HostTensor, IoSpec, Model, ModelError, Server, ServerConfig, TensorModel, Values};
use ort::{session::Session, value::Tensor, value::TensorElementType};

#[derive(Debug)]
struct Onnx {
    name: String,
    session: Mutex<Session>,
    takes_bytes: bool,
    inputs: Vec<IoSpec>,
    outputs: Vec<IoSpec>,
}

impl TensorModel for Onnx {
    fn name(&self) -> &str {
        &self.name
    }
    fn backend(&self) -> &str {
        "onnxruntime"
    }
    fn inputs(&self) -> Vec<IoSpec> {
        self.inputs.clone()
    }
    fn outputs(&self) -> Vec<IoSpec> {
        self.outputs.clone()
    }
    fn run(&self, mut inputs: Vec<HostTensor>) -> furnace::Result<Vec<HostTensor>> {
        let HostTensor { shape, values } = inputs.remove(0);
        let Values::F32(values) = values else {
            unreachable!("the input is FP32")
        };
        let failed = |error: ort::Error| ModelError::InferenceFailed(error.to_string());
        // The server knows no bytes: pictures come as floats.
        let tensor = if self.takes_bytes {
            let bytes: Vec<u8> = values.iter().map(|&value| value as u8).collect();
            Tensor::from_array((shape, bytes))
                .map_err(failed)?
                .into_dyn()
        } else {
            Tensor::from_array((shape, values))
                .map_err(failed)?
                .into_dyn()
        };
        let mut session = self.session.lock().unwrap();
        let found = session.run(ort::inputs![tensor]).map_err(failed)?;
        let (shape, values) = found[0].try_extract_tensor::<f32>().map_err(failed)?;
        let shape = shape.iter().map(|&size| size as usize).collect();
        Ok(vec![HostTensor {
            shape,
            values: Values::F32(values.to_vec()),
        }])
    }
}

/// Return the only input or output without its first dimension, which is the batch.
fn spec(name: &str, outlet: &ort::value::Outlet) -> IoSpec {
    let shape = outlet.dtype().tensor_shape().expect("a tensor");
    let sizes: Vec<usize> = shape[1..].iter().map(|&size| size as usize).collect();
    IoSpec::fp32(name, &sizes)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().collect();
    let environment = ort::init().build()?;
    let session = Session::builder(&environment)?
        .with_intra_threads(1)?
        .commit_from_file(&words[2])?;
    let model = Onnx {
        name: words[1].clone(),
        takes_bytes: session.inputs()[0].dtype().tensor_type() == Some(TensorElementType::Uint8),
        // The server's own names: it knows no other of a model with one of each.
        inputs: vec![spec("input", &session.inputs()[0])],
        outputs: vec![spec("output", &session.outputs()[0])],
        session: Mutex::new(session),
    };
    let (host, port) = ("127.0.0.1".to_string(), words[3].parse()?);
    let config = ServerConfig {
        host,
        port,
        grpc_port: Some(port + 1),
        ..ServerConfig::default()
    };
    Server::with_config(config)
        .model(Model::custom(model))
        .serve()
        .await?;
    Ok(())
}
