use super::*;

fn endpoints(url: &str) -> (Vec<String>, String) {
    match Remote::parse(url).unwrap().location {
        Location::Etcd { endpoints, key } => (endpoints, key),
        _ => panic!("not etcd"),
    }
}

#[test]
fn etcd_may_have_several_hosts_and_any_key() {
    let several = ["http://a:2379", "http://b:99", "http://[::1]:2379"].map(str::to_owned).to_vec();
    assert_eq!(endpoints("etcd://a,b:99,[::1]/diana/rules"), (several, "/diana/rules".to_owned()));
    assert_eq!(endpoints("etcds://a:443/k"), (vec!["https://a:443".to_owned()], "/k".to_owned()));
    assert_eq!(endpoints("etcd://a?key=diana/rules").1, "diana/rules");
    assert_eq!(endpoints("etcd://a/with%20space").1, "/with space");
}

#[test]
fn redis_has_a_key_by_default() {
    for (url, expected, database) in [
        ("redis://h", "diana:rules", ""),
        ("redis://h:1/3?key=mine", "mine", "/3"),
        ("rediss://u:p@h:1/?key=a%3Ab", "a:b", "/"),
    ] {
        let Location::Redis { url, key } = Remote::parse(url).unwrap().location else { panic!("not Redis") };
        assert_eq!((key.as_str(), url.path()), (expected, database));
    }
}

#[test]
fn invalid_urls_are_rejected_with_a_reason() {
    for (url, reason) in [
        ("", "unknown scheme"),
        ("ftp://h/x", "unknown scheme"),
        ("diana.yaml", "unknown scheme"),
        ("http://", "host"),
        ("etcd://h:2379", "missing key"),
        ("etcd://h:2379/", "missing key"),
        ("etcd://h:2379/a?b=c", "invalid query; expected `key=NAME`"),
        ("etcd://h:port/a", "invalid host"),
        ("redis://h/key", "expected a database number"),
        ("redis://h?kee=x", "invalid query; expected `key=NAME`"),
    ] {
        let error = Remote::parse(url).unwrap_err().to_string();
        assert!(error.contains(reason), "{url}: {error}");
    }
}

#[test]
fn secrets_are_never_shown() {
    for url in [
        "http://user:s3cret@h/x",
        "https://h/x?token=s3cret",
        "etcd://user:s3cret@h/k",
        "redis://:s3cret@h",
        "etcd://user:s3cret@h",
        "redis://u:s3cret@h/nonsense",
        "ftp://u:s3cret@h/",
        "u:s3cret@h",
    ] {
        let message = match Remote::parse(url) {
            Ok(remote) => format!("{remote:?} {}", remote.redacted()),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!message.contains("s3cret"), "{url}: {message}");
    }
    let remote = Remote::parse("http://h").unwrap().token("s3cret").credentials("u", "s3cret");
    assert!(!format!("{remote:?}").contains("s3cret"), "{remote:?}");
}

#[test]
fn the_identity_ignores_credentials() {
    let identity = |url| Remote::parse(url).unwrap().identity().to_owned();
    assert_eq!(identity("etcd://u:one@h/k"), identity("etcd://u:two@h/k"));
    assert_eq!(identity("http://u:one@h/k"), identity("http://h/k"));
    assert_ne!(identity("http://h/k?env=a"), identity("http://h/k?env=b"));
    assert_ne!(identity("redis://h/0?key=a"), identity("redis://h/0?key=b"));
}

#[test]
fn the_extension_determines_the_format() {
    let format = |url| Remote::parse(url).unwrap().effective_format();
    assert_eq!(format("http://h/rules.toml?x=1"), Format::Toml);
    assert_eq!(format("etcd://h/rules.toml"), Format::Toml);
    assert_eq!(format("redis://h"), Format::Yaml);
    assert_eq!(Remote::parse("redis://h").unwrap().format(Format::Toml).effective_format(), Format::Toml);
}
