//! The page "Limits on your functions" shows the code of the example.

#[test]
fn the_page_shows_the_code_of_the_example() {
    let page = include_str!("../../../docs/tasks/on-your-functions.md");
    let (_, rest) = include_str!("../../axum_service/shop.rs").split_once("// docs: begin\n").unwrap();
    let (part, _) = rest.split_once("// docs: end\n").unwrap();
    // The page omits visibility.
    let part = part.replace("pub(crate) ", "");
    assert!(page.contains(&format!("```rust,ignore\n{}\n```\n", part.trim())), "the page does not contain:\n{part}");
}
