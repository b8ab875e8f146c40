//! The part of the Dockerfile language that `packaging/Dockerfile` uses. Anything else is an error, so that no step is skipped.

use serde_json::Value;

/// What one `FROM` begins.
#[derive(Debug, Default)]
pub(super) struct Stage {
    pub(super) base: String,
    /// The name by which later stages copy from it; empty without one.
    pub(super) name: String,
    pub(super) instructions: Vec<Instruction>,
    pub(super) variables: Vec<(String, String)>,
    pub(super) user: String,
    pub(super) health: Option<Vec<String>>,
    pub(super) entrypoint: Vec<String>,
    pub(super) command: Vec<String>,
}

/// A step that changes files.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    Run(String),
    /// `WORKDIR`, which creates the folder.
    Enter(String),
    Copy {
        from: Option<String>,
        source: String,
        target: String,
    },
}

impl Stage {
    pub(super) fn has_rust(&self) -> bool {
        self.base.starts_with("rust:")
    }

    /// The suite of Debian that the base image has.
    pub(super) fn suite(&self) -> Result<String, String> {
        let tag = self.base.split_once(':').map_or("", |(_, tag)| tag);
        let suite = if self.has_rust() { tag.rsplit('-').next() } else { tag.strip_suffix("-slim") };
        let is_name = |suite: &&str| !suite.is_empty() && suite.bytes().all(|byte| byte.is_ascii_lowercase());
        let known = self.has_rust() || self.base.starts_with("debian:");
        let suite = suite.filter(is_name).filter(|_| known);
        suite.map(str::to_owned).ok_or_else(|| {
            format!(
                "{}: expected `debian:SUITE-slim` or `rust:VERSION-slim-SUITE`, which debootstrap can make",
                self.base
            )
        })
    }
}

/// Parses the text; a problem begins with the number of its line.
pub(super) fn parse(text: &str) -> Result<Vec<Stage>, String> {
    let mut stages = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let mut line = line.trim().to_owned();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        while line.ends_with('\\') {
            line.pop();
            let Some((_, next)) = lines.next() else { break };
            line.push_str(next.trim());
        }
        instruction(&mut stages, &line).map_err(|problem| format!("{}: {problem}", number + 1))?;
    }
    Ok(stages)
}

fn instruction(stages: &mut Vec<Stage>, line: &str) -> Result<(), String> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let words = rest.split_whitespace().collect::<Vec<_>>();
    if word == "FROM" {
        let (base, name) = match words[..] {
            [base] => (base, ""),
            [base, "AS", name] => (base, name),
            _ => return Err("expected `FROM IMAGE [AS NAME]`".to_owned()),
        };
        stages.push(Stage { base: base.to_owned(), name: name.to_owned(), user: "0:0".to_owned(), ..Stage::default() });
        return Ok(());
    }
    let stage = stages.last_mut().ok_or("expected `FROM` first")?;
    match (word, &words[..]) {
        ("RUN", _) => stage.instructions.push(Instruction::Run(rest.to_owned())),
        ("COPY", [from, source, target]) if from.starts_with("--from=") => {
            let from = from.strip_prefix("--from=").map(str::to_owned);
            stage.instructions.push(Instruction::Copy {
                from,
                source: (*source).to_owned(),
                target: (*target).to_owned(),
            });
        }
        ("COPY", [source, target]) => {
            stage.instructions.push(Instruction::Copy {
                from: None,
                source: (*source).to_owned(),
                target: (*target).to_owned(),
            });
        }
        ("WORKDIR", [folder]) => stage.instructions.push(Instruction::Enter((*folder).to_owned())),
        ("ENV", pairs) => {
            for pair in pairs {
                let (name, value) = pair.split_once('=').ok_or("expected `NAME=value`")?;
                stage.variables.push((name.to_owned(), value.to_owned()));
            }
        }
        ("USER", [user]) => stage.user = (*user).to_owned(),
        ("EXPOSE", [_]) => {}
        ("HEALTHCHECK", _) => {
            let (_, command) = rest.split_once(" CMD ").ok_or("expected `HEALTHCHECK … CMD [...]`")?;
            stage.health = Some(list(command)?);
        }
        ("ENTRYPOINT", _) => stage.entrypoint = list(rest)?,
        ("CMD", _) => stage.command = list(rest)?,
        _ => return Err(format!("`{line}` is not known to `cargo xtask image`: add it to xtask/src/image")),
    }
    Ok(())
}

fn list(json: &str) -> Result<Vec<String>, String> {
    let words = serde_json::from_str::<Value>(json).ok();
    let words =
        words.as_ref().and_then(Value::as_array).ok_or_else(|| format!("expected a list of words, found {json}"))?;
    let word = |word: &Value| word.as_str().map(str::to_owned).ok_or_else(|| format!("{word} is no text"));
    words.iter().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::{Instruction, parse};

    #[test]
    fn the_dockerfile_is_understood() {
        let stages = parse(include_str!("../../../packaging/Dockerfile")).unwrap();
        let [build, image] = &stages[..] else { panic!("{stages:#?}") };
        assert_eq!((build.suite().unwrap(), image.suite().unwrap()), ("bookworm".to_owned(), "bookworm".to_owned()));
        assert!(build.has_rust() && !image.has_rust());
        assert_eq!(image.user, "65532:65532", "not root");
        assert!(image.health.is_some());
        let program = Instruction::Copy {
            from: Some(build.name.clone()),
            source: "/src/target/release/diana".to_owned(),
            target: "/usr/local/bin/diana".to_owned(),
        };
        assert!(image.instructions.contains(&program));
    }

    #[test]
    fn unknown_steps_are_errors() {
        let problem = |text: &str| parse(text).unwrap_err();
        assert_eq!(problem("RUN true"), "1: expected `FROM` first");
        assert!(problem("FROM debian:bookworm-slim\n\nVOLUME /x").starts_with("3: `VOLUME /x` is not known"));
        assert!(problem("FROM a b").starts_with("1: expected `FROM IMAGE"));
        assert!(problem("FROM a\nCMD diana serve").starts_with("2: expected a list of words"));
        assert!(parse("FROM alpine:3").unwrap()[0].suite().is_err());
        let stages = parse("FROM debian:trixie-slim AS x\n# no step\nRUN a \\\n    && b\nENV A=1 B=2\n").unwrap();
        assert_eq!(stages[0].instructions, [Instruction::Run("a && b".to_owned())]);
        assert_eq!((stages[0].suite().unwrap(), stages[0].variables.len()), ("trixie".to_owned(), 2));
    }
}
