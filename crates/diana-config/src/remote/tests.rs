use super::*;

fn endpoints(url: &str) -> (Vec<String>, String) {
    match Remote::parse(url).unwrap().place {
        Place::Etcd { endpoints, key } => (endpoints, key),
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
        let Place::Redis { url, key } = Remote::parse(url).unwrap().place else { panic!("not Redis") };
        assert_eq!((key.as_str(), url.path()), (expected, database));
    }
}

#[test]
fn nonsense_is_refused_with_a_reason() {
    for (url, reason) in [
        ("", "scheme"),
        ("ftp://h/x", "scheme"),
        ("diana.yaml", "scheme"),
        ("http://", "host"),
        ("etcd://h:2379", "names no key"),
        ("etcd://h:2379/", "names no key"),
        ("etcd://h:2379/a?b=c", "after the `?`"),
        ("etcd://h:port/a", "a host"),
        ("redis://h/key", "number of a database"),
        ("redis://h?kee=x", "after the `?`"),
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
        let said = match Remote::parse(url) {
            Ok(remote) => format!("{remote:?} {}", remote.shown()),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!said.contains("s3cret"), "{url}: {said}");
    }
    let remote = Remote::parse("http://h").unwrap().token("s3cret").credentials("u", "s3cret");
    assert!(!format!("{remote:?}").contains("s3cret"), "{remote:?}");
}

#[test]
fn a_new_password_is_the_same_centre() {
    let identity = |url| Remote::parse(url).unwrap().identity().to_owned();
    assert_eq!(identity("etcd://u:one@h/k"), identity("etcd://u:two@h/k"));
    assert_eq!(identity("http://u:one@h/k"), identity("http://h/k"));
    assert_ne!(identity("http://h/k?env=a"), identity("http://h/k?env=b"));
    assert_ne!(identity("redis://h/0?key=a"), identity("redis://h/0?key=b"));
}

#[test]
fn the_end_of_the_name_tells_the_format() {
    let format = |url| Remote::parse(url).unwrap().format_in_use();
    assert_eq!(format("http://h/rules.toml?x=1"), Format::Toml);
    assert_eq!(format("etcd://h/rules.toml"), Format::Toml);
    assert_eq!(format("redis://h"), Format::Yaml);
    assert_eq!(Remote::parse("redis://h").unwrap().format(Format::Toml).format_in_use(), Format::Toml);
}
