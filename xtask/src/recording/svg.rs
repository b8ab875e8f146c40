//! A session as an SVG: each command is typed, and then its output appears. Without animations it is the whole session.

use super::Step;
use std::fmt::Write as _;

/// In the units of the picture.
const LINE: usize = 18;
const CHARACTER: f64 = 8.0;
const MARGIN: usize = 20;
const TITLE: usize = 34;

/// The seconds between two commands, before the output of one, and for a character.
const PAUSE: f64 = 1.4;
const ANSWER: f64 = 0.4;
const TYPING: f64 = 0.02;

const STYLE: &str = "
    svg { --back: #f6f8fa; --bar: #e4e8ec; --text: #1f2328; --prompt: #0b6e2e; --denied: #b3261e; }
    @media (prefers-color-scheme: dark) {
      svg { --back: #161b22; --bar: #2a313a; --text: #e6edf3; --prompt: #4cc268; --denied: #ff8a80; }
    }
    .back { fill: var(--back); stroke: var(--bar); }
    .bar { fill: var(--bar); }
    text { font: 13.3px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: var(--text); white-space: pre; }
    .prompt { fill: var(--prompt); font-weight: bold; }
    .command { font-weight: bold; }
    .denied { fill: var(--denied); }
    @keyframes appear { from { opacity: 0; } to { opacity: 1; } }
    .at { animation: appear 0.15s backwards; }
    @media (prefers-reduced-motion: reduce) { .at { animation: none; } }
  ";

/// Draws the steps of a session.
pub(super) fn of(steps: &[Step]) -> String {
    let (mut lines, mut at, mut y, mut columns) = (String::new(), 0.5, TITLE + MARGIN, 0);
    for step in steps {
        let shown = step.command.chars().count() + 2;
        columns = step.output.lines().map(|line| line.chars().count()).fold(columns.max(shown), usize::max);
        let command = escaped(&step.command);
        let spans = format!("<tspan class=\"prompt\">$ </tspan><tspan class=\"command\">{command}</tspan>");
        text(&mut lines, y, "at", at, &spans);
        y += LINE;
        at += shown as f64 * TYPING + ANSWER;
        for line in step.output.trim_end().lines() {
            if !line.is_empty() {
                text(&mut lines, y, class(line), at, &escaped(line));
            }
            y += LINE;
        }
        y += LINE;
        at += PAUSE;
    }
    let width = columns as f64 * CHARACTER + 2.0 * MARGIN as f64;
    let (height, title) = (y, "a terminal with Diana's rule file of the README, two clients, and who is limited");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n  <title>{title}</title>\n  <!-- Written by `cargo xtask recording`. -->\n  <style>{STYLE}</style>\n  \
         <rect class=\"back\" x=\"0.5\" y=\"0.5\" width=\"{inner_width}\" height=\"{inner_height}\" rx=\"8\"/>\n  \
         <path class=\"bar\" d=\"M1 {TITLE}V9a8 8 0 0 1 8-8H{right}a8 8 0 0 1 8 8V{TITLE}z\"/>\n  \
         <circle cx=\"20\" cy=\"17\" r=\"5.5\" fill=\"#ec6a5e\"/><circle cx=\"38\" cy=\"17\" r=\"5.5\" fill=\"#f4bf4f\"/>\
         <circle cx=\"56\" cy=\"17\" r=\"5.5\" fill=\"#61c554\"/>\n{lines}</svg>\n",
        inner_width = width - 1.0,
        inner_height = height - 1,
        right = width - 9.0,
    )
}

/// Adds a line that appears at a time.
fn text(lines: &mut String, y: usize, class: &str, at: f64, content: &str) {
    let _ = writeln!(
        lines,
        "  <text class=\"{class}\" style=\"animation-delay:{at:.2}s\" x=\"{MARGIN}\" y=\"{y}\" xml:space=\"preserve\">{content}</text>"
    );
}

fn class(line: &str) -> &'static str {
    let denied = line.contains("429") && !line.contains("denied with") || line.trim_start().starts_with("denied");
    if denied { "at denied" } else { "at" }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{Step, of};

    #[test]
    fn commands_and_lines_are_escaped_and_in_order() {
        let steps = [Step { command: "a && b".to_owned(), output: "x < y\n\n  429\n".to_owned() }];
        let svg = of(&steps);
        let command = svg.find("a &amp;&amp; b</tspan>").unwrap();
        let first = svg.find(">x &lt; y</text>").unwrap();
        let second = svg.find("class=\"at denied\"").unwrap();
        assert!(command < first && first < second, "{svg}");
        assert_eq!(svg.matches("</text>").count(), 3);
    }
}
