(** From a channel that a device has verified to a mechanism of [Life]. At the end is an example: a floor, a
    mechanism and a life that meet all premises. So the theorems are not about nothing. *)

From Coq Require Import ZArith Reals List Bool Lia Lra.
From Bandana Require Import Channel Growth Life.
Import ListNotations.
Open Scope Z_scope.

(** The price of ε alone: nano-nats rounded up. "NanoNats::from_epsilon" *)
Definition price_of (digits scale : Z) : Z := (digits * 1000000000 + (2 ^ scale - 1)) / 2 ^ scale.

Lemma price_is_rounded_up digits scale :
  0 <= scale -> (epsilon digits scale * 1000000000 <= IZR (price_of digits scale))%R.
Proof.
  intros Hs. pose proof (power_positive scale Hs) as positive. apply lt_IZR in positive as positive'.
  unfold epsilon, price_of. set (p := (digits * 1000000000 + (2 ^ scale - 1)) / 2 ^ scale).
  assert (up : digits * 1000000000 <= p * 2 ^ scale).
  { pose proof (Z.mul_succ_div_gt (digits * 1000000000 + (2 ^ scale - 1)) (2 ^ scale) positive'). fold p in H. lia. }
  apply IZR_le in up. rewrite !mult_IZR in up. apply Rmult_le_reg_r with (IZR (2 ^ scale)); [assumption|].
  replace (IZR digits / IZR (2 ^ scale) * 1000000000 * IZR (2 ^ scale))%R with (IZR digits * 1000000000)%R
    by (field; lra). exact up.
Qed.

Section Device.
Context {Reward : Type}.

(** A bit, by a floor that the device has verified, at a price rounded up. *)
Theorem bit_mechanism (bit : Reward -> Z -> Z -> bool) (threshold : Reward -> Z) t digits scale price :
  0 <= digits -> 0 <= scale ->
  verify 2 t digits scale = true ->
  (forall r, t * words <= threshold r <= words * words - t * words) ->
  (forall r u v, is_word u -> is_word v -> bit r u v = true <-> u * words + v < threshold r) ->
  (epsilon digits scale * 1000000000 <= IZR price)%R ->
  exists m, report m = (fun r u v => Z.b2z (bit r u v)) /\ Life.price m = price.
Proof.
  intros Hd Hs accepted within below up. apply verified in accepted as [floor accepted]; trivial.
  unshelve eexists.
  - refine {| size := 2; report := fun r u v => Z.b2z (bit r u v); Life.price := price |}.
    + intros r u v _ _. destruct (bit r u v); simpl; lia.
    + apply le_IZR. apply Rle_trans with (2 := up). apply Rmult_le_pos; [|lra].
      apply Rmult_le_pos; [apply IZR_le, Hd|left; apply Rinv_0_lt_compat, power_positive, Hs].
    + eapply private_by_price; [eapply bit_is_private; eassumption|exact up].
  - split; reflexivity.
Qed.

(** A symbol of k, in the same way. *)
Theorem kary_mechanism (nearby : Reward -> Z -> Z) (answer : Z -> Z -> Z) k t digits scale price :
  0 <= digits -> 0 <= scale ->
  verify k t digits scale = true ->
  (forall r u, is_word u -> 0 <= nearby r u < k) ->
  (forall truth n v, 0 <= truth < k -> 0 <= n < k - 1 -> is_word v -> n * t <= v < (n + 1) * t ->
    answer truth v = if truth <=? n then n + 1 else n) ->
  (forall truth v, 0 <= truth < k -> is_word v -> (k - 1) * t <= v -> answer truth v = truth) ->
  (* "answer: one of the k symbols" *)
  (forall truth v, 0 <= truth < k -> is_word v -> 0 <= answer truth v < k) ->
  (epsilon digits scale * 1000000000 <= IZR price)%R ->
  exists m, report m = (fun r u v => answer (nearby r u) v) /\ Life.price m = price.
Proof.
  intros Hd Hs accepted level other rest symbol up. apply verified in accepted as [floor accepted]; trivial.
  unshelve eexists.
  - refine {| size := Z.to_nat k; report := fun r u v => answer (nearby r u) v; Life.price := price |}.
    + intros r u v Hu Hv. rewrite Z2Nat.id; [auto|]. specialize (level r u Hu). lia.
    + apply le_IZR. apply Rle_trans with (2 := up). apply Rmult_le_pos; [|lra].
      apply Rmult_le_pos; [apply IZR_le, Hd|left; apply Rinv_0_lt_compat, power_positive, Hs].
    + eapply private_by_price; [eapply kary_is_private; eassumption|exact up].
  - split; reflexivity.
Qed.

End Device.

(** ** An example *)

(** The floor of ε = 1 in tests/vectors/floor.json. The check has a little room below it, and then none. *)
Definition floor : Z := 4961093570831989046.

Example verify_decides : verify 2 floor (2 ^ 52) 52 = true /\ verify 2 (floor - 10000) (2 ^ 52) 52 = false.
Proof. split; vm_compute; reflexivity. Qed.

(** Rewards from 0 to 2^53. "threshold: linear without rounding, the clamp does nothing" *)
Definition threshold (reward : Z) : Z :=
  floor * words + Z.max 0 (Z.min reward (2 ^ 53)) * (words - 2 * floor) * 2 ^ 11.

Example linear_mechanism : exists m : @Mechanism Z,
  report m = (fun r u v => Z.b2z (u * words + v <? threshold r)) /\ price m = 1000000000.
Proof.
  apply bit_mechanism with threshold floor (2 ^ 52) 52; [lia|lia| | | |].
  - apply verify_decides.
  - intros r. assert (words = 18446744073709551616) as -> by (vm_compute; reflexivity).
    unfold threshold, floor. assert (words = 18446744073709551616) as -> by (vm_compute; reflexivity). lia.
  - intros r u v _ _. apply Z.ltb_lt.
  - exact (price_is_rounded_up (2 ^ 52) 52 ltac:(lia)).
Qed.

(** A budget of one report a day, and a life of two days. Each report is drawn, written to the disk, and
    arrives. It gets its day when the server is heard. There is no room for a second one on the first day. *)
Definition budget : Budget := {| window := 1000000000; window_days := 1; lifetime_cap := 5000000000 |}.

Definition report_one {Reward} (m : @Mechanism Reward) (next : Life) : Life :=
  Then (Draw m) (Then Sync (Send 0 (fun _ => next))).

Definition two_days {Reward} (m : @Mechanism Reward) : Life :=
  report_one m
    (Then (Hear 20000 (fun _ => true)) (report_one m
      (Then NextDay (Then Crash (Then (Hear 20001 (fun _ => true)) (report_one m Stop)))))).

(** The server tells the truth in it, and exactly two reports leave. *)
Example premises_can_be_met {Reward} (m : @Mechanism Reward) user :
  price m = 1000000000 ->
  is_truthful budget (new_device 20000) (two_days m) /\
  chance budget user (fun seen => Nat.eqb (length seen) 2) (new_device 20000) [] (two_days m) = 1%R.
Proof.
  intros Hp. destruct m as [k f p in_range positive covered]. simpl in Hp. subst p. split.
  - lazy -[is_true].
    assert (truth : forall now ledger (entry : @Entry Reward) day settled, day <=? now = true ->
      is_lie_before ledger day = false -> fate entry = Arrived 20000 -> 20000 <=? day = true ->
      is_true now ledger [entry] day settled).
    { intros now ledger entry day settled Hnow no_lie arrived Hday. apply Z.leb_le in Hnow, Hday.
      split; [assumption|]. rewrite no_lie. split; [|discriminate].
      intros [|i] e Hi _ _; [|destruct i; discriminate]. injection Hi as <-. unfold is_over.
      rewrite arrived. assumption. }
    repeat match goal with
    | |- True => exact I
    | |- is_true _ _ _ _ _ => apply truth; reflexivity
    | |- _ /\ _ => split
    | |- _ -> _ => intro
    end.
  - lazy -[law symbols real_sum Rmult IZR].
    assert (one : forall g r, (forall symbol, g symbol = 1%R) ->
      real_sum (fun symbol => law f r symbol * g symbol)%R (symbols k) = 1%R).
    { intros g r Hg. rewrite <- (law_total f k r (in_range r)). unfold real_sum.
      induction (symbols k); cbn [fold_right]; [reflexivity|]. rewrite IHl, Hg. ring. }
    apply one. intros symbol. apply one. reflexivity.
Qed.
