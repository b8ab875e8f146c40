//! A client of the Redis protocol that shows replies as text.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

/// A connection.
pub(crate) struct RespClient {
    stream: BufReader<TcpStream>,
}

impl RespClient {
    pub(crate) fn connect(port: u16) -> Self {
        Self { stream: BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap()) }
    }

    /// Sends a command, in words separated by blanks.
    pub(crate) fn send(&mut self, command: &str) {
        let words = command.split_ascii_whitespace().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        let words = words.collect::<Vec<_>>();
        self.try_send(&format!("*{}\r\n{}", words.len(), words.concat())).unwrap();
    }

    pub(crate) fn try_send(&mut self, text: &str) -> std::io::Result<()> {
        self.stream.get_mut().write_all(text.as_bytes())
    }

    /// Sends a command, and returns its reply.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.reply().expect("the server closed the connection")
    }

    /// Whether a request with these attributes is allowed.
    pub(crate) fn allows(&mut self, attributes: &str) -> bool {
        let reply = self.ask(&format!("DIANA.CHECK {attributes}"));
        assert!(reply.starts_with("[0 ") || reply.starts_with("[1 "), "{reply}");
        reply.starts_with("[0 ")
    }

    /// Returns the next reply, lists in brackets; `None` if the server has closed the connection.
    pub(crate) fn reply(&mut self) -> Option<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let (kind, rest) = line.trim_end().split_at(1);
        let count = || rest.parse::<usize>().unwrap();
        Some(match kind {
            "$" if rest == "-1" => "nil".to_owned(),
            "$" => {
                let mut bytes = vec![0; count() + 2];
                self.stream.read_exact(&mut bytes).unwrap();
                String::from_utf8(bytes).unwrap().trim_end().to_owned()
            }
            "*" => format!("[{}]", (0..count()).map(|_| self.reply().unwrap()).collect::<Vec<_>>().join(" ")),
            _ => rest.to_owned(),
        })
    }
}
