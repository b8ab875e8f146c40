//! Scripts in other languages, for tests with their client libraries: redis-py in Python; node-redis and ioredis in
//! JavaScript; the extension `redis` of PHP.
//!
//! ```no_run
//! use diana_testing::{RedisServer, Script};
//!
//! let redis = RedisServer::start()?;
//! let script = "import redis, sys; print(redis.Redis.from_url(sys.argv[1]).incr('visits'))";
//! assert_eq!(Script::python(script)?.arg(&redis.url()).run()?, "1");
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::process::Process;
use crate::tools;
use crate::wait::LONG;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// The text of a script, its arguments, and how to run it.
#[derive(Clone, Debug)]
pub struct Script {
    interpreter: PathBuf,
    /// The arguments of the interpreter, before those of the script.
    options: &'static [&'static str],
    folder: PathBuf,
    text: String,
    args: Vec<String>,
    timeout: Duration,
}

impl Script {
    /// Creates a Python script; its arguments start at `sys.argv[1]`.
    pub fn python(text: &str) -> io::Result<Self> {
        let interpreter = tools::python_program("python")?;
        // Isolated, so that it imports no file of the current folder.
        let options = &["-I", "-"];
        let folder = Path::new(".").into();
        Ok(Self { interpreter, options, folder, text: text.to_owned(), args: Vec::new(), timeout: LONG })
    }

    /// Creates a JavaScript module, which can use `import` and `await` at its top level; its arguments start at
    /// `process.argv[2]`.
    pub fn node(text: &str) -> io::Result<Self> {
        // Node looks for the imports of a module without a file in the current folder.
        let folder = tools::node_folder()?;
        let options = &["--input-type=module", "-"];
        let interpreter = tools::python_program("node")?;
        Ok(Self { interpreter, options, folder, text: text.to_owned(), args: Vec::new(), timeout: LONG })
    }

    /// Creates a PHP script, which starts with `<?php`; its arguments start at `$argv[1]`. The program is the system's.
    pub fn php(text: &str) -> Self {
        let folder = Path::new(".").into();
        Self {
            interpreter: "php".into(),
            options: &["--"],
            folder,
            text: text.to_owned(),
            args: Vec::new(),
            timeout: LONG,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// Sets the time after which the script is killed, 30 s by default.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Runs the script. Returns its output without the trailing newline; an error with what it wrote to stderr if it
    /// exits with another code than 0, or times out.
    pub fn run(&self) -> io::Result<String> {
        let seconds = self.timeout.as_secs_f64().to_string();
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &seconds]).arg(&self.interpreter).args(self.options).args(&self.args);
        command.current_dir(&self.folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // An interpreter that does not read the script exits with a message.
            let _ = stdin.write_all(self.text.as_bytes());
        }
        let output = child.wait_with_output()?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let name = self.interpreter.file_name().unwrap_or_default().display();
        let problem = match output.status.code() {
            Some(0) => return Ok(stdout.trim_end().to_owned()),
            Some(124) => format!("the {name} script timed out after {:?}", self.timeout),
            _ => format!("the {name} script failed: {}", output.status),
        };
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("{problem}\n{}\n{}", stdout.trim_end(), stderr.trim_end())))
    }

    /// Starts the script without waiting for its end, such as one with an endless loop. [`timeout`](Self::timeout) does
    /// not apply.
    pub fn start(&self) -> io::Result<RunningScript> {
        let folder = TempDir::new()?;
        let (text, log) = (folder.path().join(TEXT), folder.path().join(LOG));
        std::fs::write(&text, &self.text)?;
        let mut command = Command::new(&self.interpreter);
        command.args(self.options).args(&self.args).current_dir(&self.folder);
        let process = Process::start_with_input(&mut command, File::open(text)?.into(), &log)?;
        Ok(RunningScript { process, folder })
    }
}

const TEXT: &str = "script";
const LOG: &str = "script.log";

/// A script that was started; killed on drop.
#[derive(Debug)]
pub struct RunningScript {
    // Fields are dropped in this order: first the process, then the folder with its output.
    process: Process,
    folder: TempDir,
}

impl RunningScript {
    /// Sends SIGKILL, and waits for the exit. No effect on an exited script.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.kill()
    }

    /// Returns `true` if it has exited, or been killed.
    pub fn has_ended(&self) -> bool {
        self.process.has_ended()
    }

    /// Returns what it has written to stdout and stderr so far.
    pub fn output(&self) -> io::Result<String> {
        std::fs::read_to_string(self.folder.path().join(LOG))
    }
}
