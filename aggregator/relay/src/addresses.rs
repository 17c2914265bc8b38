//! The rates of devices' addresses, which only the relay sees. None is logged or stored.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use bandana_edge::clock::Clock;
use bandana_edge::rate::{KeyedLimiter, Rate};

/// The time between two looks for addresses from which nothing came lately.
const BETWEEN_LOOKS: Duration = Duration::from_secs(10);

/// The rates of all addresses.
#[derive(Clone, Debug)]
pub(crate) struct Addresses(Option<Arc<KeyedLimiter<IpAddr>>>);

impl Addresses {
    /// Each address has this rate. None: no limit.
    pub(crate) fn new(rate: Option<Rate>, clock: &Arc<dyn Clock>) -> Self {
        Self(rate.map(|rate| Arc::new(KeyedLimiter::new(rate, Arc::clone(clock)))))
    }

    /// Admits one request.
    ///
    /// # Errors
    /// The time until the next one may pass.
    pub(crate) fn pass(&self, address: Option<IpAddr>) -> Result<(), Duration> {
        match (&self.0, address) {
            (Some(limiter), Some(address)) => limiter.pass(&of_one_user(address)),
            _ => Ok(()),
        }
    }

    /// Forgets addresses with a whole burst available, for ever.
    pub(crate) async fn forget_regularly(&self) {
        loop {
            tokio::time::sleep(BETWEEN_LOOKS).await;
            if let Some(limiter) = &self.0 {
                limiter.forget();
            }
        }
    }
}

/// The part of an address that one user can't vary: of IPv6 the first half.
pub(crate) fn of_one_user(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandana_edge::clock::ManualClock;
    use bandana_shared::identity::Day;

    #[test]
    fn an_address_has_its_own_rate_and_half_of_ipv6_is_one_address() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at_day(Day::new(20_000)));
        let addresses = Addresses::new(Rate::new(1, 2), &clock);
        let pass = |address: &str| addresses.pass(Some(address.parse().unwrap())).is_ok();
        assert_eq!([pass("192.0.2.1"), pass("192.0.2.1"), pass("192.0.2.1")], [true, true, false]);
        assert!(pass("192.0.2.2"));
        // The same device, over a socket of IPv6.
        assert!(!pass("::ffff:192.0.2.1"));
        assert_eq!(
            [pass("2001:db8::1"), pass("2001:db8::2"), pass("2001:db8::3")],
            [true, true, false]
        );
        assert!(pass("2001:db8:0:1::3"));
        assert!(addresses.pass(None).is_ok());
        assert!(Addresses::new(None, &clock).pass(None).is_ok());
    }
}
