//! The origin of a report, as the store of a relay knows it: a code of an address, and no address.

use std::net::IpAddr;

use bandana_shared::shuffling::Envelope;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::addresses::of_one_user;
use bandana_edge::gateway::GatewayKey;

/// What the key of origins is derived with.
const DOMAIN: &[u8] = b"bandana.v1.relay-origins\0";

/// The code of an address among the reports that wait for each other. Elsewhere the same address has
/// another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin(pub(super) [u8; 8]);

/// Makes origins, with a key that is not in the store: who has the store alone can't try addresses.
#[derive(Clone)]
pub(super) struct Origins(Zeroizing<[u8; 32]>);

impl Origins {
    pub(super) fn new(key: &GatewayKey) -> Self {
        Self(key.derived(DOMAIN))
    }

    /// The origin of a report from this address. Those without an address have one origin.
    pub(super) fn of(&self, address: Option<IpAddr>, envelope: &Envelope) -> Origin {
        let address = match address.map(of_one_user) {
            Some(IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
            Some(IpAddr::V6(address)) => address.octets(),
            None => [0; 16],
        };
        // All parts have a fixed length. HMAC takes keys of any.
        let code = <Hmac<Sha256>>::new_from_slice(&self.0[..]).map(|code| {
            let code = code.chain_update(envelope.digest.as_bytes()).chain_update(envelope.keys);
            let code =
                code.chain_update(envelope.cell.to_u32().to_be_bytes()).chain_update(address);
            code.finalize().into_bytes()
        });
        let code = code.unwrap_or_default();
        Origin(std::array::from_fn(|index| code[index]))
    }
}

impl std::fmt::Debug for Origins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Origins(<secret>)")
    }
}

#[cfg(test)]
mod tests {
    use bandana_shared::identity::{CellIndex, Day, Digest, UploadId};
    use bandana_shared::shuffling::{BatchSize, ShuffledReport};

    use super::*;

    #[test]
    fn an_address_has_one_code_in_a_batch_and_another_in_others() {
        let origins = Origins::new(&GatewayKey::generate().unwrap());
        let envelope = |id, cell| Envelope {
            id: UploadId::new([id; 16]),
            day: Day::new(20_000),
            digest: Digest::new([1; 16]),
            cell: CellIndex::new(cell).unwrap(),
            batch: BatchSize::new(3).unwrap(),
            keys: [8; 16],
            report: [id; ShuffledReport::SEALED_BYTES],
        };
        let of = |address: &str, envelope| origins.of(address.parse().ok(), &envelope);
        let one = of("192.0.2.1", envelope(1, 0));
        assert_eq!(of("192.0.2.1", envelope(2, 0)), one);
        assert_eq!(of("::ffff:192.0.2.1", envelope(2, 0)), one);
        assert_ne!(of("192.0.2.2", envelope(1, 0)), one);
        assert_ne!(of("192.0.2.1", envelope(1, 1)), one);
        assert_eq!(of("2001:db8::1", envelope(1, 0)), of("2001:db8::2", envelope(1, 0)));
        assert_ne!(of("2001:db8::1", envelope(1, 0)), of("2001:db8:0:1::1", envelope(1, 0)));
        let others = Origins::new(&GatewayKey::generate().unwrap());
        assert_ne!(others.of("192.0.2.1".parse().ok(), &envelope(1, 0)), one);
    }
}
