//! How requests are identified, and which tokens are not trusted.

mod token_fixtures;

use super::*;
use diana_core::{ManualClock, Timestamp};
use diana_document::Document;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const SECRET: &str = "a secret of thirty-two bytes ....";

fn read(text: &str) -> Result<Identity, String> {
    let document = Document::new("identity.yaml", text);
    let tree = document.parse().map_err(|error| error.to_string())?;
    let mut problems = Vec::new();
    Identity::read(&tree, &mut problems).ok_or_else(|| document.problems(problems).to_string())
}

fn known(text: &str) -> Identity {
    read(text).unwrap_or_else(|error| panic!("{error}"))
}

/// A request with these attributes, each by its name in rule syntax. It counts how often its token is read.
struct Request(HashMap<String, String>, AtomicUsize);

impl Attributes for Request {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        let name = attribute.to_string();
        if name == "header(authorization)" {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
        self.0.get(&name).map(|value| value.as_str().into())
    }
}

fn request(attributes: &[(&str, &str)]) -> Request {
    let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Request(attributes, AtomicUsize::new(0))
}

fn with_token(token: &str) -> Request {
    request(&[("header(authorization)", &format!("Bearer {token}"))])
}

fn named(identity: &Identity, request: &Request, name: &str) -> Option<String> {
    identity.of(request).get(&Attribute::Named(name.into())).map(Cow::into_owned)
}

fn claimed(identity: &Identity, request: &Request, name: &str) -> Option<String> {
    identity.of(request).get(&Attribute::Jwt(name.into())).map(Cow::into_owned)
}

/// An identity that verifies tokens with these settings.
fn verifying(settings: &str) -> Identity {
    known(&format!("jwt: {{{settings}}}"))
}

fn public(algorithm: &str, pem: &str) -> Identity {
    verifying(&format!("algorithm: {algorithm}, public_key: \"{}\"", pem.replace('\n', "\\n")))
}

/// A token of HS256, as a signer would make it.
fn signed(header: &str, claims: &str) -> String {
    use base64::Engine;
    let base64 = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let message = format!("{}.{}", base64(header.as_bytes()), base64(claims.as_bytes()));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = ring::hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", base64(signature.as_ref()))
}

const HS256: &str = r#"{"alg":"HS256"}"#;

fn hs256() -> Identity {
    verifying(&format!("secret: '{SECRET}'"))
}

#[test]
fn names_come_from_their_sources() {
    let identity = known(
        "account: header(X-Account-Id)\ndevice: cookie(device)\nshop: query(shop)\nclient: ip\nsite: host\nverb: method\n\
         vip: >-\n  cel(\"request.headers['x-plan'] == 'vip' ? 'yes' : ''\")\n",
    );
    assert_eq!(identity.names().collect::<Vec<_>>(), ["account", "device", "shop", "client", "site", "verb", "vip"]);
    let request = request(&[
        ("header(x-account-id)", "a1"),
        ("cookie(device)", ""),
        ("query(shop)", "s"),
        ("ip", "10.0.0.1"),
        ("host", "h"),
        ("method", "GET"),
        ("header(x-plan)", "vip"),
        ("device", "not used: the file defines its source"),
        ("tenant", "t"),
    ]);
    for (name, value) in [
        ("account", Some("a1")),
        ("device", None), // Empty.
        ("shop", Some("s")),
        ("client", Some("10.0.0.1")),
        ("site", Some("h")),
        ("verb", Some("GET")),
        ("vip", Some("yes")),
        ("tenant", Some("t")), // From the request itself.
        ("unknown", None),
    ] {
        assert_eq!(named(&identity, &request, name).as_deref(), value, "{name}");
    }
    let identified = identity.of(&request);
    assert_eq!(identified.get(&Attribute::Header("x-plan".into())).as_deref(), Some("vip"));
    assert_eq!(identified.ip(), Some([10, 0, 0, 1].into()));
    let free = self::request(&[("header(x-plan)", "free")]);
    assert_eq!(named(&identity, &free, "vip"), None, "the result of the expression is empty");
    assert_eq!(named(&known("n: cel('string(1 / int(request.query.n))')"), &free, "n"), None, "the expression fails");
}

#[test]
fn an_empty_identity_changes_nothing() {
    let request = request(&[("account", "a"), ("jwt(sub)", "s")]);
    let identity = Identity::default();
    assert_eq!(named(&identity, &request, "account").as_deref(), Some("a"));
    assert_eq!(claimed(&identity, &request, "sub").as_deref(), Some("s"));
    assert!(!identity.knows_tokens());
    assert_eq!(identity.names().count(), 0);
}

#[test]
fn tokens_of_every_algorithm_verify_only_with_their_own_key() {
    let all = [
        ("RS256", token_fixtures::RSA, token_fixtures::RS256),
        ("RS384", token_fixtures::RSA, token_fixtures::RS384),
        ("RS512", token_fixtures::RSA, token_fixtures::RS512),
        ("PS256", token_fixtures::RSA, token_fixtures::PS256),
        ("PS384", token_fixtures::RSA, token_fixtures::PS384),
        ("PS512", token_fixtures::RSA, token_fixtures::PS512),
        ("ES256", token_fixtures::P256, token_fixtures::ES256),
        ("ES384", token_fixtures::P384, token_fixtures::ES384),
        ("EdDSA", token_fixtures::ED25519, token_fixtures::EDDSA),
    ];
    let secrets =
        [("HS256", token_fixtures::HS256), ("HS384", token_fixtures::HS384), ("HS512", token_fixtures::HS512)];
    let identities = all.map(|(name, pem, token)| (public(name, pem), token)).into_iter();
    let identities = identities
        .chain(secrets.map(|(name, token)| (verifying(&format!("algorithm: {name}, secret: '{SECRET}'")), token)));
    let identities = identities.collect::<Vec<_>>();
    for (index, (identity, own)) in identities.iter().enumerate() {
        for (other, (_, token)) in identities.iter().enumerate() {
            let sub = claimed(identity, &with_token(token), "sub");
            assert_eq!(sub.as_deref(), (index == other).then_some("alice"), "{identity:?}: {token}");
        }
        // With any other letter in any part of it, the signature is no longer valid.
        for place in [3, own.find('.').unwrap() + 5, own.rfind('.').unwrap() + 9] {
            let mut bytes = own.as_bytes().to_vec();
            bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(bytes).unwrap();
            assert_eq!(claimed(identity, &with_token(&forged), "sub"), None, "{forged}");
        }
    }
}

#[test]
fn claims_are_converted_to_strings() {
    let identity = known(&format!(
        "account: jwt(sub)\ntenant: jwt(tenant)\nrole: jwt(realm.role)\n\
         who: \"cel('request.jwt.realm.role + request.jwt.n')\"\njwt: {{secret: '{SECRET}'}}"
    ));
    assert!(identity.knows_tokens());
    let request = with_token(token_fixtures::HS256);
    let of = |name| named(&identity, &request, name);
    assert_eq!(of("account").as_deref(), Some("alice"));
    assert_eq!(of("tenant").as_deref(), Some("acme"));
    assert_eq!(of("role").as_deref(), Some("admin"));
    assert_eq!(of("who").as_deref(), Some("admin7"));
    assert_eq!(claimed(&identity, &request, "n").as_deref(), Some("7"));
    assert_eq!(claimed(&identity, &request, "vip").as_deref(), Some("true"));
    for absent in ["realm", "unknown", "sub.x", "", "."] {
        assert_eq!(claimed(&identity, &request, absent), None, "{absent}");
    }
    let dotted = signed(HS256, r#"{"a.b":"whole","a":{"b":"nested"},"e":"","l":["x"],"z":null}"#);
    assert_eq!(claimed(&identity, &with_token(&dotted), "a.b").as_deref(), Some("whole"));
    for absent in ["e", "l", "z"] {
        assert_eq!(claimed(&identity, &with_token(&dotted), absent), None, "{absent}");
    }
}

#[test]
fn forged_tokens_have_no_claims() {
    let rsa = public("RS256", token_fixtures::RSA);
    assert_eq!(claimed(&rsa, &with_token(token_fixtures::CONFUSED), "sub"), None, "the public key as a secret");
    let payload = token_fixtures::HS256.split('.').nth(1).unwrap();
    let payload_json = r#"{"sub":"alice"}"#;
    assert!(claimed(&hs256(), &with_token(&signed(HS256, payload_json)), "sub").is_some());
    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"None"}"#,
        r#"{"alg":"hs256"}"#,
        r#"{"alg":"RS256"}"#,
        r#"{"alg":["HS256"]}"#,
        "{}",
        "[]",
        "",
    ] {
        assert_eq!(claimed(&hs256(), &with_token(&signed(header, payload_json)), "sub"), None, "{header}");
    }
    let critical = signed(r#"{"alg":"HS256","crit":["b64"],"b64":false}"#, payload_json);
    assert_eq!(claimed(&hs256(), &with_token(&critical), "sub"), None, "an unsupported critical extension");
    // {"alg":"none"}
    for token in [
        format!("eyJhbGciOiJub25lIn0.{payload}."),
        format!("eyJhbGciOiJub25lIn0.{payload}"),
        token_fixtures::HS256.rsplit_once('.').unwrap().0.to_owned() + ".",
        token_fixtures::HS256.replacen('.', "..", 1),
        format!("{}.x", token_fixtures::HS256),
        String::new(),
        "..".to_owned(),
        "ä.ö.ü".to_owned(),
    ] {
        for identity in
            [&rsa, &hs256(), &public("ES256", token_fixtures::P256), &public("EdDSA", token_fixtures::ED25519)]
        {
            assert_eq!(claimed(identity, &with_token(&token), "sub"), None, "{token}");
        }
    }
    let other = verifying("secret: 'another secret, of another issuer'");
    assert_eq!(claimed(&other, &with_token(token_fixtures::HS256), "sub"), None);
    let long = signed(HS256, &format!(r#"{{"sub":"alice","x":"{}"}}"#, "x".repeat(8 << 10)));
    assert_eq!(claimed(&hs256(), &with_token(&long), "sub"), None);
}

#[test]
fn a_token_without_the_claim_is_not_a_missing_token() {
    let identity = known(&format!("account: jwt(sub)\njwt: {{secret: '{SECRET}', audience: us}}"));
    let doubt = |header: Option<&str>| {
        let request = header.map_or_else(|| request(&[]), |header| request(&[("header(authorization)", header)]));
        let identified = identity.of(&request);
        let account = Attribute::Named("account".into());
        assert_eq!(identified.get(&account), None);
        let doubts = [account, Attribute::Jwt("sub".into())].map(|asked| format!("{:?}", identified.doubt(&asked)));
        assert_eq!(doubts[0], doubts[1]);
        doubts[0].clone()
    };
    assert_eq!(doubt(None), "None");
    for other in ["", " ", "Bearer", "bearer \t", "Basic YTpi", "Negotiate abc=="] {
        assert_eq!(doubt(Some(other)), "None", "{other:?}");
    }
    assert_eq!(doubt(Some(crate::attributes::SEVERAL)), "Some(Several)");
    let (long, not_for_us) = ("x".repeat(LONG), signed(HS256, r#"{"sub":"alice"}"#));
    for unverified in ["x", "Bearer x", "Bearer a.b.c", "a.b.c", "Other a.b.c", "Bearer:a.b.c", "..", &long] {
        assert_eq!(doubt(Some(unverified)), "Some(Unverified)", "{unverified}");
    }
    assert_eq!(doubt(Some(&not_for_us)), "Some(Rejected(\"alice\"))");
    assert_eq!(doubt(Some(&signed(HS256, "{}"))), "Some(Unverified)", "the token has no claim");
    let valid = with_token(&signed(HS256, r#"{"aud":"us"}"#));
    assert_eq!(identity.of(&valid).doubt(&Attribute::Jwt("sub".into())), None, "a valid token without the claim");
}

/// flask-jwt-extended looks for `Bearer` after a comma, and others remove the word at any position.
#[test]
fn ambiguous_credentials_are_not_a_missing_token() {
    let (message, signature) = token_fixtures::HS256.rsplit_once('.').unwrap();
    let (header, payload) = message.split_once('.').unwrap();
    let (start, end) = payload.split_at(3);
    let (token, identity) = (token_fixtures::HS256, hs256());
    for credentials in [
        format!("Basic x, Bearer {token}"),
        format!("Basic x,Bearer {token}"),
        format!("x, Bearer {token}"),
        format!("Basic x Bearer {token}"),
        format!("Basic x y {token}"),
        format!("{header}.{start}Bearer {end}.{signature}"),
        format!("{header}.{start}Token {end}.{signature}"),
        format!("Bearer x {token}"),
        format!("Bearer {token} {token}"),
        format!("Bearer {token}, Bearer x"),
        "Basic bearer x".to_owned(),
    ] {
        let request = request(&[("header(authorization)", &credentials)]);
        let doubt = format!("{:?}", identity.of(&request).doubt(&Attribute::Jwt("sub".into())));
        assert_eq!(doubt, "Some(Unverified)", "{credentials}");
    }
    for other in ["Basic YTpi", "Digest username=\"a.b\", realm=\"x y\"", "AWS4 Credential=a/b, Signature=c"] {
        let request = request(&[("header(authorization)", other)]);
        assert_eq!(identity.of(&request).doubt(&Attribute::Jwt("sub".into())), None, "{other}");
    }
}

#[test]
fn signatures_are_decoded_leniently() {
    let (message, signature) = token_fixtures::HS256.rsplit_once('.').unwrap();
    let standard = signature.replace('-', "+").replace('_', "/");
    for same in [format!("{signature}="), format!("{signature}==x"), standard, format!("!{signature} ")] {
        let request = request(&[("header(authorization)", &format!("{message}.{same}"))]);
        assert_eq!(claimed(&hs256(), &request, "sub").as_deref(), Some("alice"), "{same}");
    }
    // The signature covers the bytes that were sent: nothing may differ.
    let (header, payload) = message.split_once('.').unwrap();
    for other in [format!("{header}=.{payload}"), format!("{header}.{payload}="), format!("{header}.!{payload}")] {
        assert_eq!(claimed(&hs256(), &with_token(&format!("{other}.{signature}")), "sub"), None, "{other}");
    }
}

const LONG: usize = 9 << 10;

#[test]
fn a_deep_token_needs_little_stack() {
    let deep =
        |times: usize| signed(HS256, &format!(r#"{{"sub":"a","x":{}1{}}}"#, "[".repeat(times), "]".repeat(times)));
    for times in [100, 2000] {
        let (identity, request) = (hs256(), with_token(&deep(times)));
        let small = std::thread::Builder::new().stack_size(256 << 10);
        let sub = small.spawn(move || claimed(&identity, &request, "sub")).unwrap().join().unwrap();
        assert_eq!(sub.is_some(), times == 100);
    }
}

#[test]
fn a_token_is_valid_between_nbf_and_exp() {
    let clock = ManualClock::at(Timestamp::from_secs(1_000));
    let mut identity = verifying(&format!("secret: '{SECRET}', leeway: 10s"));
    identity.tokens.as_mut().unwrap().clock = Arc::new(clock.clone());
    let is_valid = |claims: &str| claimed(&identity, &with_token(&signed(HS256, claims)), "sub").is_some();
    assert!(is_valid(r#"{"sub":"a"}"#));
    assert!(is_valid(r#"{"sub":"a","exp":991}"#) && !is_valid(r#"{"sub":"a","exp":990}"#));
    assert!(is_valid(r#"{"sub":"a","nbf":1010}"#) && !is_valid(r#"{"sub":"a","nbf":1011}"#));
    assert!(is_valid(r#"{"sub":"a","exp":2000.5,"nbf":999.5}"#));
    for invalid in [r#""2000""#, "null", "[]", "-1", "true"] {
        assert!(!is_valid(&format!(r#"{{"sub":"a","exp":{invalid}}}"#)), "{invalid}");
    }
    clock.set(Timestamp::from_secs(3_000));
    assert!(!is_valid(r#"{"sub":"a","exp":2000.5}"#));
    // The same by the system clock.
    assert!(claimed(&hs256(), &with_token(&signed(HS256, r#"{"sub":"a","exp":1500000000}"#)), "sub").is_none());
}

#[test]
fn tokens_of_another_issuer_or_audience_have_no_claims() {
    let identity = verifying(&format!("secret: '{SECRET}', issuer: me, audience: [you, them]"));
    let is_valid = |claims: &str| claimed(&identity, &with_token(&signed(HS256, claims)), "sub").is_some();
    assert!(is_valid(r#"{"sub":"a","iss":"me","aud":"you"}"#));
    assert!(is_valid(r#"{"sub":"a","iss":"me","aud":["other","them"]}"#));
    for claims in [
        r#"{"sub":"a"}"#,
        r#"{"sub":"a","iss":"me"}"#,
        r#"{"sub":"a","aud":"you"}"#,
        r#"{"sub":"a","iss":"mi","aud":"you"}"#,
        r#"{"sub":"a","iss":["me"],"aud":"you"}"#,
        r#"{"sub":"a","iss":"me","aud":["other"]}"#,
        r#"{"sub":"a","iss":"me","aud":[]}"#,
        r#"{"sub":"a","iss":"me","aud":{"you":"you"}}"#,
    ] {
        assert!(!is_valid(claims), "{claims}");
    }
}

#[test]
fn a_token_is_verified_lazily_and_once() {
    let identity = hs256();
    let request = with_token(token_fixtures::HS256);
    let identified = identity.of(&request);
    assert_eq!(identified.get(&Attribute::Named("account".into())), None);
    assert_eq!(request.1.load(Ordering::Relaxed), 0);
    for _ in 0..3 {
        assert!(identified.get(&Attribute::Jwt("sub".into())).is_some());
        assert!(identified.get(&Attribute::Jwt("unknown".into())).is_none());
    }
    assert_eq!(request.1.load(Ordering::Relaxed), 1);
}

#[test]
fn tokens_are_read_from_the_configured_source() {
    for (from, name) in [("cookie(t)", "cookie(t)"), ("query(t)", "query(t)"), ("header(X-T)", "header(x-t)")] {
        let identity = verifying(&format!("secret: '{SECRET}', from: {from}"));
        assert!(claimed(&identity, &request(&[(name, token_fixtures::HS256)]), "sub").is_some(), "{from}");
        assert!(claimed(&identity, &with_token(token_fixtures::HS256), "sub").is_none(), "{from}");
    }
    let shouted = request(&[("header(authorization)", &format!("BEARER  {}", token_fixtures::HS256))]);
    assert!(claimed(&hs256(), &shouted, "sub").is_some());
    for other in ["Basic YTpi", "Bearer", "Beäre", ""] {
        assert!(claimed(&hs256(), &request(&[("header(authorization)", other)]), "sub").is_none());
    }
}

#[test]
fn verify_false_accepts_unverified_tokens() {
    let identity = verifying("verify: false");
    assert!(claimed(&identity, &with_token(token_fixtures::ES256), "sub").is_some());
    let expired = signed(HS256, r#"{"sub":"a","exp":1500000000}"#);
    assert!(claimed(&identity, &with_token(&expired), "sub").is_none());
}

#[test]
fn secrets_are_not_shown() {
    let identity = hs256();
    let request = with_token(token_fixtures::HS256);
    let identified = identity.of(&request);
    identified.get(&Attribute::Jwt("sub".into()));
    let shown = format!("{identity:?} {identified:?}");
    assert!(!shown.contains("thirty") && !shown.contains("alice"), "{shown}");
    assert!(shown.contains("HS256"), "{shown}");
}

#[test]
fn reports_invalid_settings_with_a_hint() {
    let pem = |text: &str| format!("\"{}\"", text.replace('\n', "\\n"));
    let small = format!("jwt: {{algorithm: RS256, public_key: {}}}", pem(token_fixtures::SMALL_RSA));
    let other = format!("jwt: {{algorithm: ES256, public_key: {}}}", pem(token_fixtures::RSA));
    let curve = format!("jwt: {{algorithm: ES256, public_key: {}}}", pem(token_fixtures::P384));
    let secret = format!("jwt: {{algorithm: HS256, public_key: {}}}", pem(token_fixtures::RSA));
    let alone = format!("jwt: {{public_key: {}}}", pem(token_fixtures::RSA));
    for (text, expected) in [
        ("account: headr(x)", "did you mean `header(NAME)`?"),
        ("account: header", "did you mean `header(NAME)`?"),
        ("account: header()", "missing name in `header()`"),
        ("account: x-account", "expected header(x), cookie(x)"),
        ("account: param(id)", "unknown source"),
        ("account: [header(x)]", "invalid `account`: expected a string, found a list"),
        ("[account]", "invalid `identity`: expected a map"),
        ("ip: header(x-real-ip)", "reserved name `ip`"),
        ("'a b': header(x)", "invalid name `a b`"),
        ("account: jwt(sub)", "add `jwt: {secret: '${JWT_SECRET}'}` to `identity`"),
        ("account: cel('request.jwt.sub')", "add `jwt: {secret: '${JWT_SECRET}'}` to `identity`"),
        ("account: cel(request.host)", "must be in quotes"),
        ("account: cel('device')", "unknown name `device`"),
        ("account: cel('request.hots')", "unknown request field `hots`"),
        ("jwt: secret", "invalid `jwt`: expected a map"),
        ("jwt: {}", "add one of `secret`, `public_key` and `verify: false`"),
        ("jwt: {verify: true}", "`verify: true` needs a key"),
        ("jwt: {secret: a, verify: false}", "cannot be used together"),
        ("jwt: {secret: a, public_key: b}", "cannot be used together"),
        ("jwt: {secret: ''}", "the secret is empty"),
        ("jwt: {secret: a, algorithm: RS256}", "tokens of RS256 are signed with a private key"),
        ("jwt: {secret: a, algorithm: none}", "unsupported algorithm `none`"),
        ("jwt: {secret: a, algorithm: HS255}", "expected one of `HS256`"),
        ("jwt: {secret: a, issuer: []}", "`issuer` is empty"),
        ("jwt: {secret: a, leeway: 2day}", "expected at most a day"),
        ("jwt: {secret: a, from: ip}", "invalid token source `ip`"),
        ("jwt: {secret: a, form: ip}", "did you mean `from`?"),
        ("jwt: {public_key: x, algorithm: RS256}", "invalid public key: expected PEM"),
        ("jwt: {public_key: '-----BEGIN PRIVATE KEY-----', algorithm: RS256}", "found a private key"),
        (&small, "unsupported RSA key size"),
        (&other, "the key does not fit the algorithm ES256"),
        (&curve, "the key does not fit the algorithm ES256"),
        (&secret, "tokens of HS256 are signed with a secret"),
        (&alone, "add `algorithm`, such as RS256"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(expected), "{text}:\n{error}");
    }
    assert!(known("").names().next().is_none());
    assert!(public("RS256", &token_fixtures::RSA.replace('\n', "\\n")).knows_tokens(), "lines joined by a written \\n");
}
