//! The README is short and correct: its files are valid, and its nginx configuration works. The Chinese one has the same
//! code. The recorded session, `docs/images/terminal.svg`, shows its commands with the output that the program prints.

use crate::support::client::Client;
use crate::support::program::Diana;
use crate::support::upstream::Upstream;
use crate::support::{block, diana_in, err, out};
use diana_rules::{Document, RuleFile};
use diana_testing::NginxServer;
use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../../../../README.md");
const CHINESE: &str = include_str!("../../../../README.zh.md");
const RECORDING: &str = include_str!("../../../../docs/images/terminal.svg");

/// The names that the Chinese essays on rate limiting use, so that their readers find Diana.
const CHINESE_TERMS: [&str; 14] = [
    "限流算法",
    "计数器、滑动窗口、漏桶、令牌桶",
    "分布式限流",
    "Redis + Lua",
    "平滑突发与预热",
    "接入层限流",
    "limit_conn",
    "OpenResty",
    "注解限流",
    "过滤器责任链",
    "配置中心与自动降级",
    "总并发数与池化",
    "流量整形",
    "削峰填谷",
];

/// Prints the text of each line of an SVG. Python's parser fails if it is not well-formed.
const TEXTS: &str = "
import sys, xml.etree.ElementTree as xml
for text in xml.parse(sys.argv[1]).iter('{http://www.w3.org/2000/svg}text'):
    print(''.join(text.itertext()))
";

/// The code blocks of a page: the info string and the text.
fn blocks(page: &str) -> Vec<&str> {
    page.split("```").skip(1).step_by(2).collect()
}

fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no {from:?} in\n{text}");
    text.replace(from, to)
}

/// The commands of a recorded session, each with its output without empty lines.
fn steps() -> Vec<(String, Vec<String>)> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images/terminal.svg");
    let output = Command::new("python3").args(["-c", TEXTS]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    let mut steps: Vec<(String, Vec<String>)> = Vec::new();
    for line in out(&output).lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command.to_owned(), Vec::new())),
            (None, Some((_, printed))) => printed.push(line.to_owned()),
            (None, None) => panic!("output without a command: {line}"),
        }
    }
    steps
}

#[test]
fn the_readme_is_short_and_begins_with_the_two_commands() {
    assert!(README.lines().count() <= 150, "{} lines", README.lines().count());
    let first = block(README, "# Diana\n", "console");
    let commands = first.lines().map(|line| line.split("  ").next().unwrap()).collect::<Vec<_>>();
    assert_eq!(commands, ["$ cargo run --release -- serve", "$ cargo xtask test"]);
}

#[test]
fn the_files_of_the_readme_are_valid() {
    let files = blocks(README).into_iter().filter_map(|block| block.strip_prefix("yaml\n")).collect::<Vec<_>>();
    assert_eq!(files.len(), 3);
    for text in files {
        let file = RuleFile::read_with(&Document::new("diana.yaml", text), &diana_server::registry(), |_| None);
        let file = file.unwrap_or_else(|problems| panic!("{problems}\n{text}"));
        assert!(!file.rules.is_empty(), "a file without a rule:\n{text}");
    }
}

#[test]
fn nginx_limits_as_in_the_readme() {
    let section = "\n## Ask Diana from nginx or Envoy\n";
    let rules = replaced(block(README, section, "yaml"), "127.0.0.1:8082", "$LISTEN");
    let diana = Diana::serve(&replaced(&rules, "limit: 100/s", "limit: 2/h"));
    let upstream = Upstream::echo();
    let nginx = NginxServer::start_file(|port| {
        let file = replaced(block(README, section, "nginx"), "127.0.0.1:8082", &format!("127.0.0.1:{}", diana.port()));
        let file = replaced(&file, "127.0.0.1:3000", &format!("127.0.0.1:{}", upstream.port()));
        replaced(&file, "listen 80;", &format!("listen 127.0.0.1:{port};"))
    });
    let nginx = nginx.unwrap();
    let status = |from: u8| {
        let request = "POST /orders HTTP/1.1\r\nhost: shop\r\ncontent-length: 2\r\n\r\nhi";
        Client::connect_from([127, 0, 0, from], nginx.port()).send(request).response().status
    };
    assert_eq!([1, 1, 1, 2].map(status), [200, 200, 429, 200]);
    assert_eq!((upstream.count(), &*upstream.last().body), (3, &b"hi"[..]));
}

#[test]
fn the_chinese_readme_has_the_same_code_and_links() {
    assert_eq!(blocks(CHINESE), blocks(README));
    let links = |page: &str| {
        let prose = page.split("```").step_by(2).collect::<String>();
        let links = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let pages = links.map(|link| link.split('#').next().unwrap().to_owned());
        pages.filter(|link| !link.starts_with("README")).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(links(CHINESE), links(README));
    assert!(README.contains("](README.zh.md)") && CHINESE.contains("](README.md)"));
    let missing = CHINESE_TERMS.into_iter().filter(|term| !CHINESE.contains(term)).collect::<Vec<_>>();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn the_recording_is_small_and_complete_in_itself() {
    assert!(RECORDING.len() <= 60_000, "{} bytes", RECORDING.len());
    let outside = ["<script", "href", "url(", "@import", "@font-face", "<foreignObject"];
    assert_eq!(outside.into_iter().filter(|text| RECORDING.contains(text)).collect::<Vec<_>>(), Vec::<&str>::new());
    assert!(RECORDING.contains("@keyframes") && RECORDING.contains("prefers-color-scheme: dark"));
}

#[test]
fn the_recording_shows_the_commands_of_the_readme() {
    let consoles = blocks(README).into_iter().filter_map(|block| block.strip_prefix("console\n"));
    let commands = consoles.flat_map(str::lines).filter_map(|line| line.strip_prefix("$ diana"));
    let commands = commands.map(|rest| format!("diana{}", rest.split("  ").next().unwrap())).collect::<Vec<_>>();
    assert_eq!(commands.len(), 5);
    let steps = steps();
    let shown = steps.iter().map(|(command, _)| command.trim_end_matches(" &")).collect::<Vec<_>>();
    let missing = commands.iter().filter(|command| !shown.contains(&&***command)).collect::<Vec<_>>();
    assert!(missing.is_empty(), "{missing:?} are not in {shown:?}; `cargo xtask recording` writes it again");
}

#[test]
fn the_recorded_output_is_what_the_program_prints() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("diana.yaml"), block(README, "\n## Protect a service\n", "yaml")).unwrap();
    let steps = steps();
    for name in ["diana check ", "diana explain "] {
        let (command, recorded) = steps.iter().find(|(command, _)| command.starts_with(name)).unwrap();
        let args = command.split(' ').skip(1).collect::<Vec<_>>();
        let output = diana_in(folder.path(), &args, "", &[]);
        assert_eq!(err(&output), "");
        let printed = out(&output);
        let printed = printed.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>();
        assert_eq!(&printed, recorded, "{command} differs; `cargo xtask recording` writes it again");
    }
}
