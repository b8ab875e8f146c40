//! Draws the pictures of `docs/explanations/algorithms.md`: `cargo xtask docs plots`.

mod plot;
mod traffic;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explanations");
    let page = docs.join("algorithms.md");
    let written = std::fs::read_to_string(&page).map_err(|error| format!("can't read {}: {error}", page.display()));
    let written = written.and_then(|page| {
        for (path, svg) in plot::plots_of(&page)? {
            let file = docs.join(path);
            std::fs::write(&file, &svg).map_err(|error| format!("can't write {}: {error}", file.display()))?;
            println!("{path}: {} bytes", svg.len());
        }
        Ok(())
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("algorithm_plots: {problem}");
            ExitCode::FAILURE
        }
    }
}
