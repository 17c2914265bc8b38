//! Only the privatizer can read the number in a reward.

fn main() {
    let reward = bandana_client::Reward::new(0.25).unwrap();
    let _field = reward.0;
    let _method = reward.expose();
    let bandana_client::Reward(_number) = reward;
}
