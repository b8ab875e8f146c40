//! The script files, and how the files that a request needs are combined into one script.
//!
//! Redis runs one script at a time, and a script can't call another. So one text is sent: the prelude, the libraries
//! and algorithms that the request needs, and the driver. Others are left out, since Redis runs the whole text each
//! time, and each function definition costs time. A process uses few combinations, and each is assembled once.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

/// One algorithm's file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Module {
    /// The algorithm's name in requests: the name of the file.
    pub(crate) name: &'static str,
    /// The first character of the parameters in its states.
    pub(crate) letter: char,
    pub(crate) source: &'static str,
    pub(crate) libraries: &'static [Library],
}

/// A file that several algorithms use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Library {
    source: &'static str,
}

impl Library {
    pub(crate) const QUEUE: Self = Self { source: include_str!("../scripts/lib/queue.lua") };
    pub(crate) const GCRA: Self = Self { source: include_str!("../scripts/lib/gcra.lua") };
    pub(crate) const FIELDS: Self = Self { source: include_str!("../scripts/lib/fields.lua") };
    pub(crate) const SET: Self = Self { source: include_str!("../scripts/lib/set.lua") };
    pub(crate) const GUAVA: Self = Self { source: include_str!("../scripts/lib/guava.lua") };
    const DUMP: Self = Self { source: include_str!("../scripts/lib/dump.lua") };
}

/// The algorithms that a script needs: one bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ModuleSet(u16);

impl ModuleSet {
    pub(crate) fn one(kind: usize) -> Self {
        Self(1 << kind)
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A script with its hash.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) text: String,
    pub(crate) sha: String,
}

impl Script {
    fn new(text: String) -> Self {
        let sha = redis::Script::new(&text).get_hash().to_owned();
        Self { text, sha }
    }
}

/// The scripts that were assembled so far.
#[derive(Debug)]
pub(crate) struct Scripts {
    /// The files of all algorithms, by the bit of each in a [`ModuleSet`].
    modules: Vec<&'static Module>,
    decide: RwLock<HashMap<(ModuleSet, Driver), Arc<Script>>>,
    pub(crate) dump: Script,
    pub(crate) swap: Script,
    pub(crate) cl_throttle: Script,
}

impl Scripts {
    pub(crate) fn new(modules: Vec<&'static Module>) -> Self {
        let with_dump = |source: &str| Script::new(format!("{}\n{source}", Library::DUMP.source));
        Self {
            modules,
            decide: RwLock::default(),
            dump: with_dump(include_str!("../scripts/dump.lua")),
            swap: with_dump(include_str!("../scripts/swap.lua")),
            cl_throttle: Script::new(without_comments(include_str!("../scripts/cl_throttle.lua"))),
        }
    }

    /// Returns the script that decides over these algorithms.
    pub(crate) fn decide(&self, modules: ModuleSet, driver: Driver) -> Arc<Script> {
        if let Some(script) = self.decide.read().get(&(modules, driver)) {
            return Arc::clone(script);
        }
        let script = Arc::new(Script::new(compose(&self.chosen(modules), driver)));
        Arc::clone(self.decide.write().entry((modules, driver)).or_insert(script))
    }

    fn chosen(&self, set: ModuleSet) -> Vec<&'static Module> {
        let all = self.modules.iter().enumerate();
        all.filter(|(kind, _)| set.0 & (1 << kind) != 0).map(|(_, module)| *module).collect()
    }
}

/// The part of a script that calls the algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Driver {
    /// Runs any requests: decide.lua.
    Many,
    /// Runs one ask that takes by Redis's clock, the most frequent case: decide_one.lua, at two thirds of the cost.
    One,
    /// Runs one ask that takes at a provided time.
    OneAt,
}

fn compose(modules: &[&Module], driver: Driver) -> String {
    let mut text = match driver {
        Driver::Many => include_str!("../scripts/head.lua"),
        Driver::One => include_str!("../scripts/head_one.lua"),
        Driver::OneAt => include_str!("../scripts/head_one_at.lua"),
    }
    .to_owned();
    text.push_str(include_str!("../scripts/prelude.lua"));
    text.push_str(include_str!("../scripts/lib/write.lua"));
    let mut libraries: Vec<Library> = Vec::new();
    for library in modules.iter().flat_map(|module| module.libraries) {
        if !libraries.contains(library) {
            libraries.push(*library);
            text.push_str(library.source);
        }
    }
    if driver == Driver::Many {
        text.push_str("\nlocal algorithms = {}\n");
    }
    for Module { name, source, .. } in modules {
        // Writing to a `String` does not fail.
        let _ = match driver {
            Driver::Many => write!(text, "\nalgorithms.{name} = (function()\n{source}\nend)()\n"),
            Driver::One | Driver::OneAt => write!(text, "\nlocal algorithm = (function()\n{source}\nend)()\n"),
        };
    }
    text.push_str(match driver {
        Driver::Many => include_str!("../scripts/decide.lua"),
        Driver::One | Driver::OneAt => include_str!("../scripts/decide_one.lua"),
    });
    without_comments(&text)
}

/// Removes the parts that Redis does not need: comments on separate lines, and indentation.
fn without_comments(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--"));
    lines.collect::<Vec<_>>().join("\n")
}
