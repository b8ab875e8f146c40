//! The command line: a file, a rate, and a target.

use diana::Quota;
use diana::rules::bytes::parse_byte_rate;
use std::path::PathBuf;

pub(crate) const USAGE: &str = "\
upload [FILE] [--rate RATE] [--to HOST:PORT]

  FILE              what to send; 200 KiB that are made up if there is none
  --rate RATE       how fast: 50KiB/s unless you say otherwise; 1MB/s and 8Mbit/s are rates, too
  --to HOST:PORT    where to, as plain bytes over TCP; to a receiver of its own on this machine if you don't say
";

/// The options of an upload.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) file: Option<PathBuf>,
    pub(crate) rate: Quota,
    pub(crate) rate_as_given: String,
    pub(crate) to: Option<String>,
}

impl Options {
    /// Parses `args`; `None` if they ask for help. Fails with a message if they are invalid.
    pub(crate) fn read(args: impl IntoIterator<Item = String>) -> Result<Option<Self>, String> {
        let mut args = args.into_iter();
        let (mut file, mut to, mut rate_as_given) = (None, None, "50KiB/s".to_owned());
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value behind it"));
            match arg.as_str() {
                "--help" | "-h" => return Ok(None),
                "--rate" => rate_as_given = value()?,
                "--to" => to = Some(value()?),
                other if other.starts_with('-') => return Err(format!("there is no option `{other}`")),
                path if file.is_none() => file = Some(PathBuf::from(path)),
                another => return Err(format!("one file at a time: `{another}` is a second one")),
            }
        }
        let rate = parse_byte_rate(&rate_as_given).map_err(|wrong| format!("--rate: {wrong}"))?;
        // Even from the start: the burst is 20 ms of the rate, not a second's worth.
        let burst = u128::from(rate.permits()) * 20_000_000 / rate.period().as_nanos();
        let burst = u64::try_from(burst).unwrap_or(u64::MAX).max(1);
        let rate = rate.with_burst(burst).map_err(|wrong| format!("--rate: {wrong}"))?;
        Ok(Some(Self { file, rate, rate_as_given, to }))
    }
}
