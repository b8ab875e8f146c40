//! The example `upload` sends every byte at its rate, reports progress, and reports errors. Time is tokio's, paused.

#[path = "../../upload/main.rs"]
#[allow(dead_code, reason = "the example's `main`")]
mod example;

use diana::{Limiter, TokioClock};
use example::options::Options;
use example::progress::Progress;
use parking_lot::Mutex;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The output, shared by all clones.
#[derive(Clone, Default)]
struct SharedOutput(Arc<Mutex<Vec<u8>>>);

impl SharedOutput {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl Write for SharedOutput {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0.lock().write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn options(args: &[&str]) -> Options {
    Options::parse(args.iter().map(|arg| (*arg).to_owned())).unwrap().unwrap()
}

fn limiter(options: &Options) -> Limiter {
    Limiter::new(options.rate).with_clock(TokioClock::new())
}

#[tokio::test(start_paused = true)]
async fn an_upload_keeps_its_rate_and_prints_a_line_per_second() {
    let (output, options) = (SharedOutput::default(), options(&[]));
    let mut progress = Progress::lines(output.clone());
    let (start, input) = (Instant::now(), vec![7; 200 * 1024]);
    progress.begin(200 * 1024, "200 KiB to a sink");
    let sent = example::send(&input[..], tokio::io::sink(), limiter(&options), &mut progress).await.unwrap();
    assert_eq!(sent.length(), 200 * 1024);
    // The first KiB is sent immediately.
    assert_eq!(start.elapsed(), Duration::from_millis(3_980));
    let lines = output.text();
    let expected = "200 KiB to a sink\n  \
                    25 %  51.00 KiB of 200.00 KiB  1.0 s\n  \
                    50 %  101.00 KiB of 200.00 KiB  2.0 s\n  \
                    75 %  151.00 KiB of 200.00 KiB  3.0 s\n \
                    100 %  200.00 KiB of 200.00 KiB  4.0 s\n";
    assert_eq!(lines, expected);
}

#[tokio::test(start_paused = true)]
async fn without_a_file_and_a_target_it_verifies_the_upload() {
    let options = options(&["--rate", "10MiB/s"]);
    let mut progress = Progress::lines(io::sink());
    let done = example::run(&options, limiter(&options), &mut progress).await.unwrap();
    assert_eq!(done, "200.00 KiB sent and verified: checksum 80fcdc8e4cbd8325");
}

#[tokio::test(start_paused = true)]
async fn a_file_is_sent_to_the_target() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input");
    std::fs::write(&path, b"the input").unwrap();
    let receiver = example::receiver::Receiver::start().await.unwrap();
    let options = options(&[path.to_str().unwrap(), "--to", &receiver.address.to_string()]);
    let done = example::run(&options, limiter(&options), &mut Progress::lines(io::sink())).await.unwrap();
    let received = receiver.finish().await.unwrap();
    assert_eq!((received.length(), done), (9, format!("9 B sent, checksum {received}")));
}

#[tokio::test(start_paused = true)]
async fn errors_are_reported() {
    let error = |args: &[&str]| Options::parse(args.iter().map(|arg| (*arg).to_owned())).unwrap_err();
    assert_eq!(error(&["--rate", "50"]), "--rate: invalid rate `50`; expected an amount per time, such as 512KiB/s");
    assert_eq!(error(&["--to"]), "missing value of `--to`");
    assert_eq!(error(&["--fast"]), "unknown option `--fast`");
    assert_eq!(error(&["one", "two"]), "unexpected argument `two`: expected one file");

    let run_error = async |args: &[&str]| {
        let options = options(args);
        let done = example::run(&options, limiter(&options), &mut Progress::lines(io::sink())).await;
        done.unwrap_err().to_string()
    };
    assert!(run_error(&["no such file"]).await.starts_with("can't read `no such file`: "));
    assert_eq!(run_error(&["."]).await, "`.` is not a file");
    // A port that was just free, without a listener.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let message = run_error(&["--to", &address]).await;
    assert!(message.starts_with(&format!("can't connect to {address}: ")), "{message}");
}
