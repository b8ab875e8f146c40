//! Load in the Redis protocol: pipelines of fixed commands, over several connections.

use diana_bench::now;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

const CONNECTIONS: usize = 8;
/// How many different keys there are.
const KEYS: usize = 1_000;

/// Returns pipelines of `depth` commands, over all keys. `arguments` returns the arguments for a key.
pub(crate) fn commands(name: &str, depth: usize, arguments: impl Fn(usize) -> String) -> Vec<Vec<u8>> {
    let pipelines = KEYS.div_ceil(depth);
    let command = |number: usize| {
        let text = format!("{name} {}", arguments(number % KEYS));
        let words = text.split(' ').map(|word| format!("${}\r\n{word}\r\n", word.len())).collect::<Vec<_>>();
        format!("*{}\r\n{}", words.len(), words.concat())
    };
    let pipeline = |number: usize| (0..depth).map(|index| command(number * depth + index)).collect::<String>();
    (0..pipelines).map(|number| pipeline(number).into_bytes()).collect()
}

/// Sends the pipelines for `time`, each after the answers to the one before. An answer has `lines` lines. Returns how
/// many commands were answered.
pub(crate) fn run(port: u16, pipelines: &[Vec<u8>], depth: usize, lines: usize, time: Duration) -> u64 {
    let answered = |first: usize| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_nodelay(true).unwrap();
        let (start, mut buffer, mut answered) = (now(), vec![0; 64 << 10], 0);
        for number in first.. {
            if start.elapsed() >= time {
                break;
            }
            stream.write_all(&pipelines[number % pipelines.len()]).unwrap();
            let mut missing = depth * lines;
            while missing > 0 {
                let read = stream.read(&mut buffer).unwrap();
                assert!(read > 0 && buffer[0] != b'-', "{}", String::from_utf8_lossy(&buffer[..read]));
                missing -= buffer[..read].iter().filter(|byte| **byte == b'\n').count();
            }
            answered += depth as u64;
        }
        answered
    };
    std::thread::scope(|scope| {
        let threads = (0..CONNECTIONS).map(|number| scope.spawn(move || answered(number * 7)));
        let threads = threads.collect::<Vec<_>>();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}
