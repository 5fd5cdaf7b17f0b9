//! Generates the Rust types from the `.proto` file with protox, so that no `protoc` is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["scalws/push/v1/push.proto"], ["proto"])?;
    // For tests that walk through every service and method.
    let descriptors = std::path::Path::new(&std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(descriptors, prost::Message::encode_to_vec(&files))?;
    // These can hold key bytes or a token; `src/redacted.rs` prints them without.
    let secret = ["Begin", "Chunk", "Blob", "EnrollRequest"].map(|message| format!(".scalws.push.v1.{message}"));
    tonic_prost_build::configure()
        .codec_path("crate::codec::SmallBuffers")
        .bytes(".")
        .skip_debug(secret)
        .compile_fds(files)?;
    Ok(())
}
