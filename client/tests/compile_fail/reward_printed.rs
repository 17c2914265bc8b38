//! A reward has no text, so it ends up in no log and no message.

fn main() {
    let reward = bandana_client::Reward::new(0.25).unwrap();
    println!("{reward}");
}
