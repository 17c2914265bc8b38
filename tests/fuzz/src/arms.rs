//! The file of arms that examples read.

use bandana_lab::instance::Instance;

/// Checks that parsed arms have means that rewards from 0 to 1 can have.
pub fn arms(data: &[u8]) {
    let Ok(instance) = Instance::read(data) else { return };
    for mean in instance.means() {
        // Allows for rounding.
        assert!((0.0..1.0 + 1e-9).contains(&mean), "a mean of {mean}");
    }
}
