//! Generates the messages of `proto/`. The compiler is a crate, so that no `protoc` is needed.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = ["envoy/service/ratelimit/v3/rls.proto", "envoy/service/auth/v3/external_auth.proto"];
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true).open_files(files)?;
    // For reflection.
    let descriptors = Path::new(&std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(descriptors, compiler.encode_file_descriptor_set())?;
    let generator = tonic_prost_build::configure().build_client(false).build_server(false).include_file("_includes.rs");
    generator.compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
