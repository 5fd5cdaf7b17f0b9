//! Envelope and body of a resource: whatever arrives, loading ends, and withholding keeps the claims.

use config::{Envelope, Kind, Name, Resource, ResourceId, State, Withheld, load};

/// A well-formed name for each kind, so that mutation reaches the bodies.
const NAMES: [(Kind, &str); 6] = [
    (Kind::Listener, "tcp/443"),
    (Kind::Host, "tcp/443/shop.example.com"),
    (Kind::Fragment, "Ingress/demo/shop/shop.example.com"),
    (Kind::Pool, "demo/shop/80/"),
    (Kind::Certificate, "demo/shop-tls"),
    (Kind::Policy, "demo/shop/limits"),
];

/// The first byte chooses the kind, and whether the name is a good one or the rest of the first line.
fn resource(data: &[u8]) -> Option<(ResourceId, &[u8])> {
    let (choice, rest) = data.split_first()?;
    let (kind, good) = NAMES[usize::from(*choice) % NAMES.len()];
    if *choice < 128 {
        return Some((ResourceId { kind, name: Name::from_wire(good) }, rest));
    }
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let name = String::from_utf8_lossy(&rest[..end]).into_owned();
    Some((ResourceId { kind, name: Name::from_wire(name) }, &rest[end + 1..]))
}

pub(crate) fn run(data: &[u8]) {
    let Some((id, bytes)) = resource(data) else { return };
    let Ok(loaded) = load(id.clone(), bytes) else { return };
    assert_eq!(loaded.id, id);
    assert_eq!(loaded.claims.is_some(), id.kind == Kind::Fragment, "exactly the fragments claim");
    if let State::NotLive { message, .. } = &loaded.state {
        assert!(!message.chars().any(char::is_control), "a message for people has no control characters: {message:?}");
    }
    let resource = Resource { id: id.clone(), bytes: bytes.to_vec().into(), secrets: Vec::new() };
    let reason = Withheld { code: "Condemned".to_owned(), message: "it was refused".to_owned() };
    let withheld = Envelope::withhold(&resource, reason.clone()).expect("what loads can be withheld");
    let again = load(id, &withheld.bytes).expect("what is withheld loads");
    assert_eq!(again.claims, loaded.claims, "the claims stay");
    assert_eq!(again.state, State::Withheld(reason));
}
