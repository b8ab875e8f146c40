use super::*;
use proptest::prelude::*;

/// Returns the commands of `input`, fed in pieces of these lengths and then the rest, and the error at the end, if any.
fn commands(input: &[u8], pieces: &[usize], bounds: &Bounds) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let (mut parser, mut commands) = (Parser::default(), Vec::new());
    let (mut start, mut end) = (0, 0);
    for piece in pieces.iter().copied().chain([input.len()]) {
        end = (end + piece).min(input.len());
        loop {
            let available = &input[start..end];
            match parser.parse(available, bounds) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    assert!(length > 0 && length <= available.len());
                    let command = parser.command(available);
                    commands.push(command.args(0).map(<[u8]>::to_vec).collect());
                    start += length;
                }
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

fn parse_all(input: &[u8]) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    commands(input, &[], &Bounds::AUTHENTICATED)
}

/// The words of the only command.
fn words(input: &[u8]) -> Vec<String> {
    let (commands, error) = parse_all(input);
    assert_eq!((commands.len(), error), (1, None));
    commands[0].iter().map(|word| word.escape_ascii().to_string()).collect()
}

fn error(input: &[u8]) -> String {
    parse_all(input).1.map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn arrays_are_commands() {
    assert_eq!(words(b"*1\r\n$4\r\nPING\r\n"), ["PING"]);
    assert_eq!(words(b"*2\r\n$4\r\nECHO\r\n$5\r\na\r\n\0b\r\n"), ["ECHO", r"a\r\n\x00b"]);
    assert_eq!(words(b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n"), ["GET", ""]);
    let long = [b"*2\r\n$4\r\nECHO\r\n$300\r\n".as_slice(), &[b'x'; 300], b"\r\n"].concat();
    assert_eq!(words(&long)[1].len(), 300);
    // Arrays without arguments are skipped.
    assert_eq!(parse_all(b"*0\r\n*-1\r\n*1\r\n$1\r\na\r\n").0, [vec![], vec![], vec![b"a".to_vec()]]);
}

#[test]
fn lines_are_commands() {
    assert_eq!(words(b"PING\r\n"), ["PING"]);
    assert_eq!(words(b"  set  a\tb \n"), ["set", "a", "b"]);
    assert_eq!(
        words(b"echo \"a \\\"b\\\" \\x0a\\n\\q\" 'c \\' d' e\\\r\n"),
        ["echo", r#"a \"b\" \n\nq"#, r"c \' d", r"e\\"]
    );
    assert_eq!(words(b"echo a\"b\" \"\"\n"), ["echo", "ab", ""]);
    assert_eq!(parse_all(b"\r\n\n"), (vec![vec![], vec![]], None));
}

#[test]
fn other_bytes_are_errors() {
    assert_eq!(error(b"*x\r\n"), "invalid multibulk length");
    assert_eq!(error(b"*+1\r\n"), "invalid multibulk length");
    assert_eq!(error(b"*1025\r\n"), "invalid multibulk length");
    assert_eq!(error(b"*1\rx"), "invalid multibulk length");
    assert_eq!(error(b"*99999999999999999999\r\n"), "invalid multibulk length");
    assert_eq!(error(&[b'*'; 40]), "too big count string");
    assert_eq!(error(b"*1\r\nx"), "expected '$', got 'x'");
    assert_eq!(error(b"*1\r\n\n"), r"expected '$', got '\n'");
    assert_eq!(error(b"*1\r\n$-1\r\n"), "invalid bulk length");
    assert_eq!(error(b"*1\r\n$65537\r\n"), "invalid bulk length");
    assert_eq!(error(b"*1\r\n$1\r\nabc"), "expected CRLF after a bulk string");
    assert_eq!(error(b"echo \"a\n"), "unbalanced quotes in request");
    assert_eq!(error(b"echo 'a'b\n"), "unbalanced quotes in request");
    let line = Bounds::AUTHENTICATED.line;
    assert_eq!(error(&vec![b'x'; line + 1]), "too big inline request");
    assert_eq!(parse_all(&vec![b'x'; line]), (vec![], None));
}

#[test]
fn a_command_is_bounded() {
    let mut input = b"*10\r\n".to_vec();
    for _ in 0..10 {
        input.extend_from_slice(b"$65536\r\n");
        input.extend_from_slice(&[b'x'; 65_536]);
        input.extend_from_slice(b"\r\n");
    }
    assert_eq!(error(&input), "command is longer than 262144 bytes");
    let unauthenticated = |input: &[u8]| commands(input, &[], &Bounds::UNAUTHENTICATED).1.unwrap().to_string();
    assert_eq!(unauthenticated(b"*11\r\n"), "unauthenticated multibulk length");
    assert_eq!(unauthenticated(b"*1\r\n$16385\r\n"), "unauthenticated bulk length");
    assert_eq!(unauthenticated(&[b'x'; 16_385]), "too big inline request");
    assert_eq!(unauthenticated(b"1 2 3 4 5 6 7 8 9 10 11\n"), "too many arguments in an inline request");
    let quoted = [&b"'' ".repeat(11)[..], b"\n"].concat();
    assert_eq!(unauthenticated(&quoted), "too many arguments in an inline request");
}

/// Bytes that often are commands.
fn inputs() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        4 => prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6).prop_map(|args| array(&args)),
        1 => prop::collection::vec(any::<u8>(), 0..12),
        1 => "[ -~]{0,20}\r?\n".prop_map(String::into_bytes),
        1 => "[*$]-?[0-9]{0,3}\r\n".prop_map(String::into_bytes),
    ];
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

fn array(args: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_split_gives_the_same_commands(input in inputs(), pieces in prop::collection::vec(0..9_usize, 0..60)) {
        for bounds in [Bounds::AUTHENTICATED, Bounds::UNAUTHENTICATED] {
            let whole = commands(&input, &[], &bounds);
            prop_assert_eq!(&whole, &commands(&input, &pieces, &bounds));
            prop_assert_eq!(&whole, &commands(&input, &vec![1; input.len()], &bounds));
        }
    }

    #[test]
    fn an_array_is_parsed_back(commands in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..6), 1..6)) {
        let input = commands.iter().map(|args| array(args)).collect::<Vec<_>>().concat();
        prop_assert_eq!(parse_all(&input), (commands, None));
    }
}
