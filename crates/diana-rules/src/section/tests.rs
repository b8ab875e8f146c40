use super::*;
use crate::{Registry, RuleFile, scalar, schema};
use diana_document::Document;
use diana_document::map_reader::MapReader;

/// `admin: {listen: ...}`
#[derive(Clone, Debug, Default, PartialEq)]
struct Listener(Vec<SocketAddr>);

impl Section for Listener {
    const NAME: &'static str = "admin";

    fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`admin`", ["listen"], problems)?;
        let listen = fields.take("listen").map(|node| scalar::listen(node, problems));
        fields.finish(problems);
        Some(Self(listen.unwrap_or_default()))
    }

    fn schema() -> Value {
        object("a listener", &["listen"], |_| schema::listen("127.0.0.1:1"))
    }

    fn listens_on(&self) -> Vec<SocketAddr> {
        self.0.clone()
    }
}

/// `proxy: {listen: ...}`, which needs local rules.
#[derive(Debug)]
struct Proxy(Listener);

impl Section for Proxy {
    const NAME: &'static str = "proxy";

    fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        Listener::parse(node, problems).map(Self)
    }

    fn schema() -> Value {
        Listener::schema()
    }

    fn listens_on(&self) -> Vec<SocketAddr> {
        Section::listens_on(&self.0)
    }

    fn requires_rules(&self) -> bool {
        true
    }
}

fn read(text: &str, registry: &Registry) -> Result<RuleFile, String> {
    RuleFile::read(&Document::new("diana.yaml", text), registry).map_err(|problems| problems.to_string())
}

fn both() -> Registry {
    let mut registry = Registry::default();
    registry.section::<Listener>();
    registry.section::<Proxy>();
    registry
}

#[test]
fn a_section_is_never_ignored_by_its_own_code() {
    let text = "{admin: {listen: '127.0.0.1:1'}, rules: []}";
    let listener = Listener(vec!["127.0.0.1:1".parse().unwrap()]);
    assert_eq!(read(text, &both()).unwrap().section(), Ok(Some(&listener)));
    assert_eq!(read("rules: []", &both()).unwrap().section::<Listener>(), Ok(None));
    // A program that does not register it ignores it, but its own code does not treat it as absent.
    let mut file = read(text, &Registry::default()).unwrap();
    assert_eq!(file.section::<Listener>(), Err(SectionNotRegistered { name: "admin" }));
    assert_eq!(file.section_or_default::<Listener>(), Err(SectionNotRegistered { name: "admin" }));
    file.set_section(listener.clone());
    assert_eq!(file.section_or_default(), Ok(listener));
}

#[test]
fn problems_of_sections_are_those_of_the_file() {
    let problems_of = |text: &str| read(text, &both()).unwrap_err();
    let both = problems_of("{admin: {lisen: 5}, proxy: {listen: x}, rules: [{name: a, brust: 5}]}");
    assert!(
        ["did you mean `listen`?", "invalid value `x` for `listen`", "`brust`"].iter().all(|what| both.contains(what))
    );
    let twice =
        problems_of("{proxy: {listen: '127.0.0.1:1'}, admin: {listen: ['127.0.0.1:0', '127.0.0.1:1']}, rules: []}");
    assert!(twice.contains("address 127.0.0.1:1 is already used by `admin`"), "{twice}");
    assert!(twice.contains("use another address for `proxy`"), "{twice}");
    // An unknown section is a typo, not a section of another crate.
    assert!(problems_of("{proxi: {}, rules: []}").contains("did you mean `proxy`?"));
    assert!(read("{proxy: {}, rules: []}", &Registry::default()).is_err());
}

#[test]
fn a_section_may_need_local_rules_beside_a_config_server() {
    assert!(read("remote: {}", &both()).is_ok());
    assert!(read("{remote: {}, proxy: {}}", &both()).unwrap_err().contains("missing `rules`"));
    assert!(read("admin: {}", &both()).unwrap_err().contains("missing `rules`"));
}

#[test]
fn the_schema_has_what_is_registered() {
    let of = |registry: &Registry, name: &str| schema::rule_file(registry)["properties"][name].clone();
    assert_eq!(of(&both(), "proxy"), Listener::schema());
    assert_eq!(of(&both(), "admin"), Listener::schema());
    assert!(of(&Registry::default(), "proxy").is_null());
    assert_eq!(of(&Registry::default(), "admin")["type"], "object");
}
