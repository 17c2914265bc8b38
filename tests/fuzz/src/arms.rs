//! The file of arms that examples read.

use bandana_studies::instance::Instance;

/// Arms that are read have means that rewards from 0 to 1 can have.
pub fn arms(data: &[u8]) {
    let Ok(instance) = Instance::read(data) else { return };
    for mean in instance.means() {
        // Rounding may add a little.
        assert!((0.0..1.0 + 1e-9).contains(&mean), "a mean of {mean}");
    }
}
