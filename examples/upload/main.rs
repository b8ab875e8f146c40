//! An upload at 50 KiB/s, with a progress bar.
//!
//! `cargo run --example upload` makes 200 KiB up, sends them to a receiver of its own on this machine, and
//! checks that each of them arrived; that takes four seconds. `-- FILE --rate 1MiB/s --to HOST:PORT` sends a file
//! elsewhere, as plain bytes over TCP: `nc -l 9000 > copy` receives them.
//!
//! The whole of the limit is in [`send`]: a limiter, and a writer that is throttled by it.

mod checksum;
pub(crate) mod options;
pub(crate) mod progress;
pub(crate) mod receiver;

use checksum::Checksum;
use diana::core::Limiter;
use diana::pace::Throttled;
use options::{Options, USAGE};
use progress::{Progress, size};
use receiver::Receiver;
use std::error::Error;
use std::io::{Cursor, IsTerminal, stderr};
use std::process::ExitCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// What is sent if no file is named.
const MADE_UP: u64 = 200 * 1024;

/// Sends all of `source` to `target`, as fast as `limiter` allows.
pub(crate) async fn send(
    mut source: impl AsyncRead + Unpin,
    target: impl AsyncWrite + Unpin,
    limiter: Limiter,
    progress: &mut Progress,
) -> std::io::Result<Checksum> {
    let mut target = Throttled::new(target).writes(limiter);
    let (mut checksum, mut buffer) = (Checksum::default(), vec![0; 16 * 1024]);
    loop {
        let read = source.read(&mut buffer).await?;
        let mut rest = buffer.get(..read).unwrap_or_default();
        if rest.is_empty() {
            target.shutdown().await?;
            return Ok(checksum);
        }
        checksum.add(rest);
        while !rest.is_empty() {
            let sent = target.write(rest).await?;
            rest = rest.get(sent..).unwrap_or_default();
            progress.moved(sent);
        }
    }
}

/// Sends what `options` say to where they say; what became of it, in a line.
pub(crate) async fn run(
    options: &Options,
    limiter: Limiter,
    progress: &mut Progress,
) -> Result<String, Box<dyn Error>> {
    let (source, length): (Box<dyn AsyncRead + Unpin>, u64) = match &options.file {
        Some(path) => {
            let wrong = |error| format!("{} can't be read: {error}", path.display());
            let file = tokio::fs::File::open(path).await.map_err(wrong)?;
            let about = file.metadata().await.map_err(wrong)?;
            if !about.is_file() {
                return Err(format!("{} is no file", path.display()).into());
            }
            (Box::new(file), about.len())
        }
        None => (Box::new(Cursor::new(made_up())), MADE_UP),
    };
    let receiver = if options.to.is_none() { Some(Receiver::start().await?) } else { None };
    let address = options.to.clone().or_else(|| receiver.as_ref().map(|receiver| receiver.address.to_string()));
    let address = address.unwrap_or_default();
    let target = TcpStream::connect(&address).await.map_err(|error| {
        format!("nobody takes the upload at {address}: {error}; start a receiver there, such as `nc -l PORT > copy`")
    })?;
    progress.begin(length, &format!("{} to {address}, at {}", size(length), options.rate_as_given));
    let sent = send(source, target, limiter, progress).await?;
    progress.end();
    let Some(receiver) = receiver else { return Ok(format!("{} sent, checksum {sent}", size(sent.length()))) };
    let received = receiver.finish().await?;
    if received != sent {
        return Err(
            format!("sent {sent} in {} B, but {received} in {} B arrived", sent.length(), received.length()).into()
        );
    }
    Ok(format!("{} sent, and every byte arrived: checksum {sent}", size(sent.length())))
}

fn made_up() -> Vec<u8> {
    (0..=u8::MAX).cycle().take(usize::try_from(MADE_UP).unwrap_or(usize::MAX)).collect()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("upload: {problem}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut progress = if stderr().is_terminal() { Progress::bar() } else { Progress::lines(stderr()) };
    let stopped = tokio::select! {
        done = run(&options, Limiter::new(options.rate), &mut progress) => match done {
            Ok(done) => {
                println!("{done}");
                return ExitCode::SUCCESS;
            }
            Err(problem) => format!("{problem}"),
        },
        _ = tokio::signal::ctrl_c() => "stopped".to_owned(),
    };
    progress.end();
    eprintln!("upload: {stopped}; {} were sent", size(progress.sent()));
    ExitCode::FAILURE
}
