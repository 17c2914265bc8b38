(** The privacy of a device's whole life, under the rule of its ledger.

    A device reports many times. A server that sees all reports so far chooses the next one. The ledger of
    client/src/ledger.rs refuses a report for which there is no room. This file models that ledger, and proves
    what all reports together tell: at most the cap of a window, and at most the cap of a lifetime. *)

From Coq Require Import ZArith Reals List Bool Lia Lra.
From Bandana Require Import Channel.
Import ListNotations.
Open Scope Z_scope.

Section Life.
Context {Reward : Type}.

(** ** Reports and their prices *)

(** Nano-nats as nats. *)
Definition nats (price : Z) : R := (IZR price / 1000000000)%R.

(** A way to make a report, with its price. *)
Record Mechanism := {
  size : nat;
  report : @Report Reward;
  price : Z;
  is_symbol : forall r u v, is_word u -> is_word v -> 0 <= report r u v < Z.of_nat size;
  is_priced : 0 <= price;
  is_covered : is_private (nats price) report;
}.

(** A price is that of ε, rounded up. "NanoNats::from_epsilon" *)
Lemma private_by_price ε price (report : @Report Reward) :
  is_private ε report -> (ε * 1000000000 <= IZR price)%R -> is_private (nats price) report.
Proof.
  intros private up r r' symbol. apply Rle_trans with (1 := private r r' symbol).
  apply Rmult_le_compat_r; [apply law_nonnegative|].
  assert (ε <= nats price)%R by (unfold nats; lra).
  destruct (Rle_lt_or_eq_dec _ _ H) as [less|<-]; [left; apply exp_increasing, less|apply Rle_refl].
Qed.

(** ** The ledger: client/src/ledger.rs *)

(** Sums have no end here. In the code they end at 2^64 - 1: see [what_ends_admits_less]. A cap of 2^64 - 1 means
    there that there is none. [today] is 0 before any day is heard, as in the code. *)
Record Ledger := { lifetime : Z; undated : Z; days : list (Z * Z); today : Z }.

Record Budget := { window : Z; window_days : Z; lifetime_cap : Z }.

(** Budget::WINDOW_DAYS_MAX *)
Definition longest : Z := 31.

(** The sum of some numbers. *)
Definition total {A} (f : A -> Z) (all : list A) : Z := fold_right (fun a s => f a + s) 0 all.

(** The debits from a day on. *)
Definition since (first : Z) : list (Z * Z) -> Z :=
  total (fun '(day, debit) => if first <=? day then debit else 0).

(** Ledger::spent *)
Definition spent_in_window (budget : Budget) (ledger : Ledger) : Z :=
  undated ledger + since (today ledger - (window_days budget - 1)) (days ledger).

(** Ledger::admits *)
Definition admits (budget : Budget) (ledger : Ledger) (price : Z) : bool :=
  (lifetime ledger + price <=? lifetime_cap budget) &&
  (spent_in_window budget ledger + price <=? window budget).

(** Ledger::debit *)
Definition debit (ledger : Ledger) (price : Z) : Ledger :=
  {| lifetime := lifetime ledger + price; undated := undated ledger + price;
     days := days ledger; today := today ledger |}.

(** Ledger::is_lie_before *)
Definition is_lie_before (ledger : Ledger) (day : Z) : bool := day + 1 <? today ledger.

(** Ledger::hear *)
Definition hear (ledger : Ledger) (day settled : Z) : Ledger :=
  let is_later := fun '(d, _) => day <? d in
  let '(kept, last) :=
    if is_lie_before ledger day then
      ((day, total snd (filter is_later (days ledger)))
       :: filter (fun d => negb (is_later d)) (days ledger), day)
    else (days ledger, today ledger) in
  let last := Z.max last day in
  let settled := Z.min settled (undated ledger) in
  {| lifetime := lifetime ledger; undated := undated ledger - settled;
     days := filter (fun '(d, _) => last - (longest - 1) <=? d) ((last, settled) :: kept); today := last |}.

(** ** The device and the world *)

(** What becomes of a report: it waits on the device, it has arrived on a day, or it never will. *)
Inductive Fate := Waiting | Arrived (day : Z) | Lost.

(** A debit has a day in the ledger, or none. If its report is on the disk, the disk knows whether the report
    was given up, and which day its debit has. *)
Record Entry := { by_mechanism : Mechanism; fate : Fate; dated : option Z; saved : option (bool * option Z) }.

(** The true day, the ledger in memory, the one on the disk, and all reports that were ever paid. *)
Record World := { clock : Z; device : Ledger; disk : Ledger; entries : list Entry }.

Definition cost (entry : Entry) : Z := price (by_mechanism entry).

Definition is_undated (entry : Entry) : bool := match dated entry with None => true | Some _ => false end.

Definition is_dated_after (day : Z) (entry : Entry) : bool :=
  match dated entry with None => false | Some d => day <? d end.

Definition with_fate (f : Fate) (entry : Entry) : Entry :=
  {| by_mechanism := by_mechanism entry; fate := f; dated := dated entry; saved := saved entry |}.

Definition with_day (day : Z) (entry : Entry) : Entry :=
  {| by_mechanism := by_mechanism entry; fate := fate entry; dated := Some day; saved := saved entry |}.

(** An entry when all is written to the disk. *)
Definition save (entry : Entry) : Entry :=
  let is_lost := match fate entry with Lost => true | _ => false end in
  {| by_mechanism := by_mechanism entry; fate := fate entry; dated := dated entry;
     saved := Some (is_lost, dated entry) |}.

(** What is left of an entry after a crash. *)
Definition restore (entry : Entry) : list Entry :=
  match saved entry with
  | None => []
  | Some (is_lost, day) =>
      let fate := match fate entry with Arrived d => Arrived d | _ => if is_lost then Lost else Waiting end in
      [{| by_mechanism := by_mechanism entry; fate := fate; dated := day; saved := saved entry |}]
  end.

(** Changes the i-th entry. *)
Fixpoint change (i : nat) (f : Entry -> Entry) (all : list Entry) : list Entry :=
  match all, i with
  | [], _ => []
  | entry :: rest, O => f entry :: rest
  | entry :: rest, S j => entry :: change j f rest
  end.

(** All that can happen between two reports. *)
Inductive Event :=
(* Midnight, of true days. *)
| NextDay
(* An arm is drawn that will report by this mechanism. The ledger admits and debits the report, or there is
   none. *)
| Draw (mechanism : Mechanism)
(* The i-th report is given up, and no call with it is under way any more. See "Dropped::hear". *)
| GiveUp (i : nat)
(* The device hears a day. Debits without a day that pass the test get one. The ledger is told their sum. *)
| Hear (day : Z) (settled : nat -> bool)
(* All is written to the disk. *)
| Sync
(* The device forgets what is not on the disk. *)
| Crash.

(** The entries that a day is given to. *)
Fixpoint settle (day : Z) (settled : nat -> bool) (all : list Entry) : list Entry :=
  match all with
  | [] => []
  | entry :: rest =>
      (if settled O && is_undated entry then with_day day entry else entry)
      :: settle day (fun i => settled (S i)) rest
  end.

Fixpoint sum_of_settled (settled : nat -> bool) (all : list Entry) : Z :=
  match all with
  | [] => 0
  | entry :: rest =>
      (if settled O && is_undated entry then cost entry else 0) + sum_of_settled (fun i => settled (S i)) rest
  end.

Definition happen (budget : Budget) (world : World) (event : Event) : World :=
  match event with
  | NextDay =>
      {| clock := clock world + 1; device := device world; disk := disk world; entries := entries world |}
  | Draw m =>
      if admits budget (device world) (price m) then
        let drawn := {| by_mechanism := m; fate := Waiting; dated := None; saved := None |} in
        {| clock := clock world; device := debit (device world) (price m); disk := disk world;
           entries := drawn :: entries world |}
      else world
  | GiveUp i =>
      match nth_error (entries world) i with
      | Some {| fate := Waiting |} =>
          {| clock := clock world; device := device world; disk := disk world;
             entries := change i (with_fate Lost) (entries world) |}
      | _ => world
      end
  | Hear day settled =>
      let heard := hear (device world) day (sum_of_settled settled (entries world)) in
      let move := fun e =>
        if is_lie_before (device world) day && is_dated_after day e then with_day day e else e in
      {| clock := clock world; device := heard; disk := disk world;
         entries := settle (today heard) settled (map move (entries world)) |}
  | Sync =>
      {| clock := clock world; device := device world; disk := device world;
         entries := map save (entries world) |}
  | Crash =>
      {| clock := clock world; device := disk world; disk := disk world;
         entries := flat_map restore (entries world) |}
  end.

(** The way of the i-th report, if it can leave: it waits, and its debit is on the disk. *)
Definition can_leave (world : World) (i : nat) : option Mechanism :=
  match nth_error (entries world) i with
  | Some {| by_mechanism := m; fate := Waiting; saved := Some _ |} => Some m
  | _ => None
  end.

(** The i-th report leaves, and arrives today. *)
Definition arrive (world : World) (i : nat) : World :=
  {| clock := clock world; device := device world; disk := disk world;
     entries := change i (with_fate (Arrived (clock world))) (entries world) |}.

(** ** All that a server may do *)

(** A life is a tree. Whoever stands against the user has chosen it: all that happens, with what is asked of
    the device, when reports arrive, and what comes next after each symbol. *)
Inductive Life :=
| Stop
| Then (event : Event) (next : Life)
(* The i-th report arrives, if it can leave. Its symbol is seen. *)
| Send (i : nat) (next : Z -> Life).

(** What a user does: the reward of the report that arrives on a day, after some symbols. A user may choose it
    by all that was sent before. *)
Definition User : Type := Z -> list Z -> Reward.

(** The probability that the symbols of a life pass a test. *)
Fixpoint chance (budget : Budget) (user : User) (test : list Z -> bool) (world : World) (seen : list Z)
  (life : Life) : R :=
  match life with
  | Stop => if test seen then 1 else 0
  | Then event next => chance budget user test (happen budget world event) seen next
  | Send i next =>
      match can_leave world i with
      | Some m =>
          real_sum
            (fun symbol =>
               law (report m) (user (clock world) seen) symbol *
               chance budget user test (arrive world i) (seen ++ [symbol]) (next symbol))%R
            (symbols (size m))
      | None => chance budget user test world seen (next 0)
      end
  end.

(** A new device. *)
Definition new_device (day : Z) : World :=
  let ledger := {| lifetime := 0; undated := 0; days := []; today := 0 |} in
  {| clock := day; device := ledger; disk := ledger; entries := [] |}.

(** ** Sums *)

Lemma real_sum_le {A} (f g : A -> R) xs :
  (forall a, f a <= g a)%R -> (real_sum f xs <= real_sum g xs)%R.
Proof. intros H. induction xs; simpl; [lra|]. specialize (H a). lra. Qed.

Lemma real_sum_times {A} (f : A -> R) c xs : (real_sum (fun a => c * f a) xs = c * real_sum f xs)%R.
Proof. induction xs; simpl; [ring|]. rewrite IHxs. ring. Qed.

Lemma total_cons {A} (f : A -> Z) a xs : total f (a :: xs) = f a + total f xs.
Proof. reflexivity. Qed.

Lemma total_le {A} (f g : A -> Z) xs : (forall a, In a xs -> f a <= g a) -> total f xs <= total g xs.
Proof.
  induction xs; simpl; intros H; [lia|].
  pose proof (H a (or_introl eq_refl)). specialize (IHxs (fun b Hb => H b (or_intror Hb))).
  fold (total f xs) (total g xs). lia.
Qed.

Lemma total_ext {A} (f g : A -> Z) xs : (forall a, In a xs -> f a = g a) -> total f xs = total g xs.
Proof. intros H. apply Z.le_antisymm; apply total_le; intros a Ha; rewrite (H a Ha); lia. Qed.

Lemma total_zero {A} (f : A -> Z) xs : (forall a, In a xs -> f a = 0) -> total f xs = 0.
Proof.
  intros H. rewrite (total_ext f (fun _ => 0) xs H). induction xs; simpl; [reflexivity|]. auto with datatypes.
Qed.

Lemma total_plus {A} (f g : A -> Z) xs : total (fun a => f a + g a) xs = total f xs + total g xs.
Proof. induction xs; simpl; lia. Qed.

Lemma total_map {A B} (h : A -> B) f xs : total f (map h xs) = total (fun a => f (h a)) xs.
Proof. induction xs; simpl; lia. Qed.

Lemma total_filter {A} (p : A -> bool) f xs :
  total f (filter p xs) = total (fun a => if p a then f a else 0) xs.
Proof. induction xs as [|a xs IH]; simpl; [reflexivity|]. destruct (p a); simpl; rewrite IH; reflexivity. Qed.

Lemma total_change (f : Entry -> Z) i g xs entry :
  nth_error xs i = Some entry -> total f (change i g xs) = total f xs - f entry + f (g entry).
Proof.
  revert i. induction xs; intros [|i]; simpl; try discriminate.
  - intros [= ->]. lia.
  - intros H. specialize (IHxs i H). unfold total in *. lia.
Qed.

Lemma in_change i g xs old entry :
  nth_error xs i = Some old -> In entry (change i g xs) -> In entry xs \/ entry = g old.
Proof.
  revert i. induction xs as [|e xs IH]; intros [|i]; simpl; try discriminate.
  - intros [= ->] [<-|H]; auto.
  - intros Hi [<-|H]; [auto|]. destruct (IH i Hi H); auto.
Qed.

(** A sum that ends at 2^64 - 1 admits nothing that the true one would not, whatever the cap is below that. *)
Lemma what_ends_admits_less amounts price cap :
  (forall a, In a amounts -> 0 <= a) -> 0 <= price -> cap < 2 ^ 64 - 1 ->
  fold_right (fun a sum => Z.min (a + sum) (2 ^ 64 - 1)) 0 amounts + price <= cap ->
  total (fun a => a) amounts + price <= cap.
Proof.
  intros Hall Hp Hcap Hsum.
  assert (ends : fold_right (fun a sum => Z.min (a + sum) (2 ^ 64 - 1)) 0 amounts =
    Z.min (total (fun a => a) amounts) (2 ^ 64 - 1)); [|lia].
  clear Hsum. induction amounts as [|a amounts IH]; [reflexivity|]. cbn [fold_right]. rewrite total_cons, IH.
  - pose proof (Hall a (or_introl eq_refl)). lia.
  - intros b Hb. apply Hall. right. exact Hb.
Qed.

(** ** Composition *)

Lemma chance_nonnegative budget user test world seen life : (0 <= chance budget user test world seen life)%R.
Proof.
  revert world seen. induction life as [|event next IH|i next IH]; intros world seen; simpl.
  - destruct (test seen); lra.
  - apply IH.
  - destruct (can_leave world i) as [m|]; [|apply IH].
    induction (symbols (size m)); simpl; [lra|].
    apply Rplus_le_le_0_compat; [|assumption]. apply Rmult_le_pos; [apply law_nonnegative|apply IH].
Qed.

(** All that can be seen has the probability 1. *)
Theorem chance_total budget user world seen life : chance budget user (fun _ => true) world seen life = 1%R.
Proof.
  revert world seen. induction life as [|event next IH|i next IH]; intros world seen; simpl; auto.
  destruct (can_leave world i) as [m|]; [|apply IH].
  rewrite <- (law_total (report m) (size m) (user (clock world) seen) (is_symbol m _)).
  unfold real_sum. induction (symbols (size m)) as [|a l IHl]; [reflexivity|].
  cbn [fold_right]. rewrite IHl, IH. ring.
Qed.

(** [safe] says what is known of a world and of what is still to come, [charge] what was charged for so far.
    Whatever happens keeps both. A report that arrives is charged for where the two users may differ. *)
Lemma composition budget (safe : World -> Life -> Prop) (charge : World -> Z) cap (differ : Z -> bool)
  (user user' : User) test :
  (forall world life, safe world life -> charge world <= cap) ->
  (forall world event next, safe world (Then event next) ->
    safe (happen budget world event) next /\ charge (happen budget world event) = charge world) ->
  (forall world i next, safe world (Send i next) ->
    match can_leave world i with
    | Some m =>
        (forall symbol, safe (arrive world i) (next symbol)) /\
        charge (arrive world i) = charge world + if differ (clock world) then price m else 0
    | None => safe world (next 0)
    end) ->
  (forall day seen, differ day = false -> user day seen = user' day seen) ->
  forall life world seen, safe world life ->
  (chance budget user test world seen life <=
   exp (nats (cap - charge world)) * chance budget user' test world seen life)%R.
Proof.
  intros capped kept charged agree. induction life as [|event next IH|i next IH]; intros world seen Hsafe.
  - specialize (capped _ _ Hsafe). simpl.
    assert (1 <= exp (nats (cap - charge world)))%R.
    { rewrite <- exp_0. assert (0 <= nats (cap - charge world))%R as [H|<-].
      - unfold nats. apply Rmult_le_pos; [apply IZR_le; lia|lra].
      - left. apply exp_increasing, H.
      - apply Rle_refl. }
    destruct (test seen); lra.
  - simpl. destruct (kept _ _ _ Hsafe) as [Hnext <-]. apply IH, Hnext.
  - simpl. pose proof (charged world i next Hsafe) as step. clear charged.
    destruct (can_leave world i) as [m|]; [|apply IH, step]. destruct step as [Hnext Hcharge].
    rewrite <- real_sum_times. apply real_sum_le. intros symbol.
    specialize (IH symbol _ (seen ++ [symbol]) (Hnext symbol)).
    pose proof (law_nonnegative (report m) (user (clock world) seen) symbol) as Hlaw.
    pose proof (chance_nonnegative budget user' test (arrive world i) (seen ++ [symbol]) (next symbol)).
    apply Rle_trans with (1 := Rmult_le_compat_l _ _ _ Hlaw IH). rewrite Hcharge.
    rewrite <- !Rmult_assoc. apply Rmult_le_compat_r; [assumption|].
    destruct (differ (clock world)) eqn:may_differ.
    + pose proof (is_covered m (user (clock world) seen) (user' (clock world) seen) symbol) as ratio.
      apply Rle_trans with (1 := Rmult_le_compat_r _ _ _ (Rlt_le _ _ (exp_pos _)) ratio).
      rewrite Rmult_assoc, (Rmult_comm (law _ _ _)), <- Rmult_assoc, <- exp_plus.
      apply Rmult_le_compat_r; [apply law_nonnegative|]. right. f_equal. unfold nats.
      rewrite !minus_IZR, plus_IZR. field.
    + rewrite (agree _ seen may_differ), Z.add_0_r. right. ring.
Qed.

(** ** What the ledger keeps *)

(** What the reports cost that have arrived on some days. *)
Definition arrived (counts : Z -> bool) (entry : Entry) : Z :=
  match fate entry with Arrived d => if counts d then cost entry else 0 | _ => 0 end.

Definition is_within (first last day : Z) : bool := (first <=? day) && (day <=? last).

Definition waits_or_since (first : Z) (entry : Entry) : Z :=
  match fate entry with
  | Waiting => cost entry
  | Arrived d => if first <=? d then cost entry else 0
  | Lost => 0
  end.

Definition cost_if_undated (entry : Entry) : Z := if is_undated entry then cost entry else 0.

Definition cost_if_dated (first : Z) (entry : Entry) : Z :=
  match dated entry with Some d => if first <=? d then cost entry else 0 | None => 0 end.

(** The report has arrived by a day, or never will. *)
Definition is_over (day : Z) (entry : Entry) : Prop :=
  match fate entry with Waiting => False | Arrived d => d <= day | Lost => True end.

(** What is always true of a ledger, the reports that it has paid, and a clock. *)
Record Sound (budget : Budget) (now : Z) (ledger : Ledger) (all : list Entry) : Prop := {
  no_future : today ledger <= now;
  undated_sum : undated ledger = total cost_if_undated all;
  dated_sums : forall a, now - (longest - 1) <= a -> since a (days ledger) = total (cost_if_dated a) all;
  no_negative : forall day debit, In (day, debit) (days ledger) -> 0 <= debit;
  (* No debit has an earlier day than its report has arrived on. *)
  no_early_day : forall e d, In e all -> dated e = Some d -> is_over d e;
  (* Whatever still waits fits into each window that is not over. *)
  room : forall a, now <= a + (window_days budget - 1) -> total (waits_or_since a) all <= window budget;
  past : forall a, total (arrived (is_within a (a + (window_days budget - 1)))) all <= window budget
}.

Lemma cost_nonnegative entry : 0 <= cost entry.
Proof. apply is_priced. Qed.

Ltac by_cases :=
  repeat match goal with
  | |- context [if ?a <=? ?b then _ else _] => destruct (Z.leb_spec a b)
  | |- context [(?a <=? ?b) && _] => destruct (Z.leb_spec a b)
  end; simpl in *.

Lemma sound_next_day budget now ledger all :
  Sound budget now ledger all -> Sound budget (now + 1) ledger all.
Proof.
  intros []. split; trivial; [lia|intros; apply dated_sums0; lia|intros; apply room0; lia].
Qed.

Lemma sound_draw budget now ledger all m :
  window_days budget <= longest ->
  Sound budget now ledger all -> admits budget ledger (price m) = true ->
  Sound budget now (debit ledger (price m))
    ({| by_mechanism := m; fate := Waiting; dated := None; saved := None |} :: all).
Proof.
  intros length [] admitted. unfold admits, spent_in_window in admitted.
  apply andb_prop in admitted as [_ admitted]. apply Z.leb_le in admitted.
  split; simpl; trivial.
  - unfold cost_if_undated at 1. simpl. unfold cost at 1. simpl. fold (total cost_if_undated all). lia.
  - intros e d [<-|H]; simpl; [discriminate|eauto].
  - intros a Ha. fold (total (waits_or_since a) all). unfold waits_or_since at 1, cost at 1. simpl.
    (* What waits or has arrived since is without a day in the ledger, or has a day since. *)
    assert (total (waits_or_since a) all <= undated ledger + since a (days ledger)).
    { rewrite undated_sum0, dated_sums0, <- total_plus by lia. apply total_le. intros e He.
      specialize (no_early_day0 e). unfold waits_or_since, cost_if_undated in *.
      unfold is_undated, cost_if_dated, is_over in *.
      pose proof (cost_nonnegative e). destruct (dated e) as [d|].
      - specialize (no_early_day0 d He eq_refl). destruct (fate e); by_cases; lia.
      - destruct (fate e); by_cases; lia. }
    assert (since a (days ledger) <= since (today ledger - (window_days budget - 1)) (days ledger)).
    { apply total_le. intros [day debit] Hin. specialize (no_negative0 _ _ Hin). by_cases; lia. }
    lia.
Qed.

(** A report that waits has no day. So its fate changes nothing in the ledger. *)
Lemma sound_fate budget now ledger all i entry f :
  Sound budget now ledger all -> nth_error all i = Some entry -> fate entry = Waiting ->
  f = Lost \/ f = Arrived now ->
  Sound budget now ledger (change i (with_fate f) all).
Proof.
  intros [] Hi waits Hf.
  assert (no_day : dated entry = None).
  { destruct (dated entry) as [d|] eqn:Hd; [|reflexivity].
    specialize (no_early_day0 entry d (nth_error_In _ _ Hi) Hd). unfold is_over in *. rewrite waits in *. tauto. }
  assert (Hroom : forall a, now <= a + (window_days budget - 1) ->
    total (waits_or_since a) (change i (with_fate f) all) <= window budget).
  { intros a Ha. rewrite (total_change _ _ _ _ _ Hi). specialize (room0 a Ha).
    pose proof (cost_nonnegative entry).
    unfold waits_or_since at 2 3. rewrite waits. destruct Hf as [->| ->]; simpl; [lia|].
    change (cost (with_fate (Arrived now) entry)) with (cost entry). by_cases; lia. }
  split; trivial.
  - rewrite (total_change _ _ _ _ _ Hi), undated_sum0. unfold cost_if_undated, is_undated. simpl.
    change (cost (with_fate f entry)) with (cost entry). lia.
  - intros a Ha. rewrite (total_change _ _ _ _ _ Hi), dated_sums0 by trivial. unfold cost_if_dated. simpl.
    rewrite no_day. lia.
  - intros e d He Hd. destruct (in_change _ _ _ _ _ Hi He) as [|He']; [eauto|].
    rewrite He' in Hd. simpl in Hd. congruence.
  - intros a. pose proof (past0 a).
    destruct (Z.le_gt_cases now (a + (window_days budget - 1))) as [open|over].
    + apply Z.le_trans with (2 := Hroom a open). apply total_le. intros e _. pose proof (cost_nonnegative e).
      unfold arrived, is_within, waits_or_since. destruct (fate e); [lia| |lia].
      destruct (Z.leb_spec a day), (Z.leb_spec day (a + (window_days budget - 1))); simpl; lia.
    + rewrite (total_change _ _ _ _ _ Hi).
      assert (arrived (is_within a (a + (window_days budget - 1))) entry = 0) as ->.
      { unfold arrived. rewrite waits. reflexivity. }
      assert (arrived (is_within a (a + (window_days budget - 1))) (with_fate f entry) = 0) as ->; [|lia].
      destruct Hf as [->| ->]; [reflexivity|]. unfold arrived, is_within. simpl.
      destruct (Z.leb_spec now (a + (window_days budget - 1))); [lia|]. rewrite andb_false_r. reflexivity.
Qed.

(** What a server may say that tells the truth: a day that is not in the future. Each debit that gets a day now
    is that of a report which had arrived by then, or which never arrives. The same holds of each debit whose
    day is put back, since it was a lie. *)
Definition is_true (now : Z) (ledger : Ledger) (all : list Entry) (day : Z) (settled : nat -> bool) : Prop :=
  day <= now /\
  (forall i e, nth_error all i = Some e -> is_undated e = true -> settled i = true -> is_over day e) /\
  (is_lie_before ledger day = true -> forall e, In e all -> is_dated_after day e = true -> is_over day e).

Lemma total_settle f day settled all :
  (forall e, f (with_day day e) = f e) -> total f (settle day settled all) = total f all.
Proof.
  intros H. revert settled. induction all as [|e all IH]; intros settled; simpl; [reflexivity|].
  fold (total f (settle day (fun i => settled (S i)) all)). rewrite IH.
  destruct (settled O && is_undated e); rewrite ?H; reflexivity.
Qed.

Lemma settled_bounds settled all : 0 <= sum_of_settled settled all <= total cost_if_undated all.
Proof.
  revert settled. induction all as [|e all IH]; intros settled; [simpl; lia|].
  cbn [sum_of_settled]. rewrite total_cons. specialize (IH (fun i => settled (S i))).
  pose proof (cost_nonnegative e).
  pose proof (eq_refl : cost_if_undated e = if is_undated e then cost e else 0).
  destruct (settled O), (is_undated e); simpl; lia.
Qed.

Lemma undated_settle day settled all :
  total cost_if_undated (settle day settled all) = total cost_if_undated all - sum_of_settled settled all.
Proof.
  revert settled. induction all as [|e all IH]; intros settled; [reflexivity|].
  cbn [sum_of_settled settle]. rewrite !total_cons, IH.
  pose proof (eq_refl : cost_if_undated e = if is_undated e then cost e else 0).
  pose proof (eq_refl : cost_if_undated (with_day day e) = 0).
  destruct (settled O), (is_undated e); simpl; lia.
Qed.

Lemma dated_settle a day settled all :
  total (cost_if_dated a) (settle day settled all) =
  total (cost_if_dated a) all + if a <=? day then sum_of_settled settled all else 0.
Proof.
  revert settled. induction all as [|e all IH]; intros settled.
  - simpl. destruct (a <=? day); reflexivity.
  - cbn [sum_of_settled settle]. rewrite !total_cons, IH.
    pose proof (eq_refl : cost_if_dated a (with_day day e) = if a <=? day then cost e else 0).
    assert (is_undated e = true -> cost_if_dated a e = 0).
    { unfold is_undated, cost_if_dated. destruct (dated e); [discriminate|reflexivity]. }
    destruct (settled O), (is_undated e), (a <=? day); simpl; lia.
Qed.

Lemma in_settle day settled all e :
  In e (settle day settled all) ->
  In e all \/
  exists i old, nth_error all i = Some old /\ is_undated old = true /\ settled i = true /\ e = with_day day old.
Proof.
  revert settled. induction all as [|x all IH]; intros settled; simpl; [tauto|].
  intros [He|He].
  - destruct (settled O) eqn:Hs, (is_undated x) eqn:Hu; simpl in He; auto.
    right. exists O, x. auto.
  - destruct (IH _ He) as [|[i [old H]]]; [auto|]. right. exists (S i), old. exact H.
Qed.

Lemma settled_map move settled all :
  (forall e, cost (move e) = cost e /\ is_undated (move e) = is_undated e) ->
  sum_of_settled settled (map move all) = sum_of_settled settled all.
Proof.
  intros H. revert settled. induction all as [|e all IH]; intros settled; simpl; [reflexivity|].
  destruct (H e) as [-> ->]. rewrite IH. reflexivity.
Qed.

Lemma since_filter a first xs :
  first <= a -> since a (filter (fun '(d, _) => first <=? d) xs) = since a xs.
Proof.
  intros H. unfold since. rewrite total_filter. apply total_ext. intros [d x] _. by_cases; try lia.
Qed.

Lemma sound_hear budget now ledger all day settled :
  Sound budget now ledger all -> is_true now ledger all day settled ->
  let heard := hear ledger day (sum_of_settled settled all) in
  let move := fun e => if is_lie_before ledger day && is_dated_after day e then with_day day e else e in
  Sound budget now heard (settle (today heard) settled (map move all)).
Proof.
  intros [] [future [settled_true moved_true]] heard move.
  assert (same : forall f, (forall d e, f (with_day d e) = f e) ->
    total f (settle (today heard) settled (map move all)) = total f all).
  { intros f Hf. rewrite total_settle, total_map by apply Hf. apply total_ext. intros e _. unfold move.
    destruct (is_lie_before ledger day && is_dated_after day e); rewrite ?Hf; reflexivity. }
  assert (kept : forall e, cost (move e) = cost e /\ is_undated (move e) = is_undated e).
  { intros e. unfold move. destruct (is_lie_before ledger day); simpl; [|auto].
    unfold is_dated_after, is_undated. destruct (dated e) eqn:He; [|rewrite He; auto].
    destruct (day <? z); simpl; rewrite ?He; auto. }
  pose proof (settled_bounds settled all) as bounds. rewrite <- undated_sum0 in bounds.
  pose proof (settled_map move settled all kept) as settled_kept.
  (* The days before today's debits are added, and old ones forgotten. *)
  set (moved_days := if is_lie_before ledger day
    then (day, total snd (filter (fun '(d, _) => day <? d) (days ledger)))
         :: filter (fun x => negb (let '(d, _) := x in day <? d)) (days ledger)
    else days ledger).
  assert (Htoday : today heard = Z.max (if is_lie_before ledger day then day else today ledger) day).
  { unfold heard, hear. destruct (is_lie_before ledger day); reflexivity. }
  assert (Hdays : days heard = filter (fun '(d, _) => today heard - (longest - 1) <=? d)
    ((today heard, sum_of_settled settled all) :: moved_days)).
  { unfold heard, hear, moved_days. rewrite Z.min_l by lia. destruct (is_lie_before ledger day); reflexivity. }
  assert (Hundated : undated heard = undated ledger - sum_of_settled settled all).
  { unfold heard, hear. rewrite Z.min_l by lia. destruct (is_lie_before ledger day); reflexivity. }
  assert (present : today heard <= now).
  { rewrite Htoday. destruct (is_lie_before ledger day); lia. }
  assert (later : day <= today heard) by lia.
  clearbody heard.
  split; trivial.
  - rewrite Hundated, undated_settle, settled_kept, total_map, undated_sum0. f_equal. apply total_ext. intros e _.
    unfold cost_if_undated. destruct (kept e) as [-> ->]. reflexivity.
  - intros a Ha. rewrite Hdays, since_filter by lia. unfold since at 1. simpl. fold (since a moved_days).
    rewrite dated_settle, settled_kept, total_map. rewrite Z.add_comm. f_equal.
    unfold moved_days, move. destruct (is_lie_before ledger day); simpl; [|apply dated_sums0, Ha].
    fold (since a (filter (fun x => negb (let '(d, _) := x in day <? d)) (days ledger))).
    unfold since at 1. rewrite !total_filter. specialize (dated_sums0 a Ha). unfold since in dated_sums0.
    destruct (Z.leb_spec a day).
    + rewrite <- total_plus. transitivity (since a (days ledger)).
      * apply total_ext. intros [d x] _. simpl.
        destruct (Z.ltb_spec day d), (Z.leb_spec a d); simpl; lia.
      * unfold since. rewrite dated_sums0. apply total_ext. intros e _. unfold is_dated_after, cost_if_dated.
        destruct (dated e) as [d|] eqn:He; [|rewrite He; reflexivity].
        destruct (Z.ltb_spec day d); simpl; rewrite ?He; by_cases; try lia; reflexivity.
    + rewrite (total_zero (fun x => if negb _ then _ else 0)), total_zero; [lia| |].
      * intros e _. unfold is_dated_after, cost_if_dated.
        destruct (dated e) as [d|] eqn:He; [|rewrite He; reflexivity].
        destruct (Z.ltb_spec day d); simpl; rewrite ?He; by_cases; try lia; reflexivity.
      * intros [d x] _. destruct (Z.ltb_spec day d), (Z.leb_spec a d); simpl; lia.
  - rewrite Hdays. intros d x Hin. apply filter_In in Hin as [[[= <- <-]|Hin] _]; [lia|].
    unfold moved_days in Hin. destruct (is_lie_before ledger day); [|eauto].
    destruct Hin as [[= <- <-]|Hin]; [|apply filter_In in Hin as [Hin _]; eauto].
    rewrite total_filter. apply Z.le_trans with (total (fun _ : Z * Z => 0) (days ledger)).
    { rewrite total_zero; auto. lia. }
    apply total_le. intros [d x] Hin. specialize (no_negative0 _ _ Hin).
    destruct (day <? d); simpl; lia.
  - intros e d He Hd.
    assert (moved_over : forall x, In x all -> forall d, dated (move x) = Some d -> is_over d x).
    { intros x Hx d' Hd'. unfold move in Hd'. destruct (is_lie_before ledger day) eqn:lie; simpl in Hd'; [|eauto].
      destruct (is_dated_after day x) eqn:after; [|eauto]. injection Hd' as <-. auto. }
    assert (over_move : forall d x, is_over d (move x) <-> is_over d x).
    { intros d' x. unfold move. destruct (is_lie_before ledger day && is_dated_after day x); reflexivity. }
    destruct (in_settle _ _ _ _ He) as [Hin|[i [old [Hi [Hu [Hs ->]]]]]].
    + apply in_map_iff in Hin as [x [<- Hx]]. apply over_move. eauto.
    + injection Hd as <-. rewrite nth_error_map in Hi. destruct (nth_error all i) as [x|] eqn:Hx; [|discriminate].
      injection Hi as <-. destruct (kept x) as [_ Hux]. rewrite Hux in Hu.
      specialize (settled_true i x Hx Hu Hs). change (is_over (today heard) (move x)). apply over_move.
      unfold is_over in *. destruct (fate x); lia.
  - intros a Ha. rewrite same; auto.
  - intros a. rewrite same; auto.
Qed.

(** ** Crashes *)

Lemma total_restore f all : total f (flat_map restore all) = total (fun e => total f (restore e)) all.
Proof.
  induction all as [|e all IH]; [reflexivity|]. cbn [flat_map]. rewrite total_cons, <- IH.
  induction (restore e); cbn [app]; [reflexivity|]. rewrite !total_cons, IHl. lia.
Qed.

Lemma restore_change i g e all :
  nth_error all i = Some e -> restore (g e) = restore e ->
  flat_map restore (change i g all) = flat_map restore all.
Proof.
  intros Hi H. revert i Hi. induction all as [|x all IH]; intros [|i]; cbn; try discriminate.
  - intros [= ->]. rewrite H. reflexivity.
  - intros Hi. rewrite (IH i Hi). reflexivity.
Qed.

Lemma restore_settle day settled all : flat_map restore (settle day settled all) = flat_map restore all.
Proof.
  revert settled. induction all as [|e all IH]; intros settled; cbn; [reflexivity|]. rewrite IH.
  destruct (settled O && is_undated e); reflexivity.
Qed.

Lemma restore_move (is_moved : Entry -> bool) day all :
  flat_map restore (map (fun e => if is_moved e then with_day day e else e) all) = flat_map restore all.
Proof. induction all as [|e all IH]; cbn; [reflexivity|]. rewrite IH. destruct (is_moved e); reflexivity. Qed.

Lemma restore_save all : flat_map restore (map save all) = map save all.
Proof.
  induction all as [|e all IH]; cbn; [reflexivity|]. rewrite IH. unfold save. destruct (fate e); reflexivity.
Qed.

Lemma restore_twice all : flat_map restore (flat_map restore all) = flat_map restore all.
Proof.
  induction all as [|e all IH]; cbn; [reflexivity|]. rewrite flat_map_app, IH. f_equal.
  unfold restore. destruct (saved e) as [[[] d]|]; [| |reflexivity]; cbn; destruct (fate e); reflexivity.
Qed.

Lemma restore_arrive i f e e' all :
  nth_error all i = Some e -> restore e = [e'] -> restore (with_fate f e) = [with_fate f e'] ->
  exists j, nth_error (flat_map restore all) j = Some e' /\
    flat_map restore (change i (with_fate f) all) = change j (with_fate f) (flat_map restore all).
Proof.
  intros Hi He He'. revert i Hi. induction all as [|x all IH]; intros [|i]; cbn; try discriminate.
  - intros [= ->]. exists O. rewrite He, He'. split; reflexivity.
  - intros Hi. destruct (IH i Hi) as [j [Hj Heq]]. exists (length (restore x) + j)%nat. rewrite Heq.
    induction (restore x) as [|y ys IHy]; cbn; [auto|]. destruct IHy as [-> ->]. auto.
Qed.

Lemma sound_save budget now ledger all : Sound budget now ledger all -> Sound budget now ledger (map save all).
Proof.
  intros []. split; trivial.
  - rewrite total_map. exact undated_sum0.
  - intros a. rewrite total_map. exact (dated_sums0 a).
  - intros e d He Hd. apply in_map_iff in He as [x [<- Hx]]. exact (no_early_day0 x d Hx Hd).
  - intros a. rewrite total_map. exact (room0 a).
  - intros a. rewrite total_map. exact (past0 a).
Qed.

(** A report that has arrived is on the disk. One that was given up before the last write is so still. *)
Definition is_tidy (entry : Entry) : Prop :=
  match saved entry with
  | None => match fate entry with Arrived _ => False | _ => True end
  | Some (is_lost, _) => is_lost = true -> fate entry = Lost
  end.

Definition tells_truth (world : World) (event : Event) : Prop :=
  match event with
  | Hear day settled => is_true (clock world) (device world) (entries world) day settled
  | _ => True
  end.

Lemma change_tidy all i g old : (forall e, In e all -> is_tidy e) ->
  nth_error all i = Some old -> is_tidy (g old) -> forall e, In e (change i g all) -> is_tidy e.
Proof. intros H Hi Hg e He. destruct (in_change _ _ _ _ _ Hi He) as [| ->]; auto. Qed.

Definition all_tidy (world : World) : Prop := forall e, In e (entries world) -> is_tidy e.

Lemma tidy_happen budget world event : all_tidy world -> all_tidy (happen budget world event).
Proof.
  intros tidy. destruct event as [|m|i|day settled| |]; simpl; trivial.
  - destruct (admits budget (device world) (price m)); trivial. intros e [<-|He]; [exact I|auto].
  - destruct (nth_error (entries world) i) as [[m [|d|] dated s]|] eqn:Hi; trivial.
    unfold all_tidy. simpl. eapply change_tidy; eauto. specialize (tidy _ (nth_error_In _ _ Hi)).
    unfold is_tidy in *. simpl in *.
    destruct s as [[[] d]|]; auto.
  - intros e He. destruct (in_settle _ _ _ _ He) as [Hin|[i [old [Hi [_ [_ ->]]]]]].
    + apply in_map_iff in Hin as [x [<- Hx]]. specialize (tidy x Hx).
      destruct (is_lie_before (device world) day && is_dated_after day x); exact tidy.
    + apply nth_error_In, in_map_iff in Hi as [x [<- Hx]]. specialize (tidy x Hx).
      destruct (is_lie_before (device world) day && is_dated_after day x); exact tidy.
  - intros e He. apply in_map_iff in He as [x [<- _]]. unfold is_tidy, save. simpl.
    destruct (fate x); [discriminate|discriminate|trivial].
  - intros e He. apply in_flat_map in He as [x [Hx He]]. specialize (tidy x Hx). unfold is_tidy, restore in *.
    destruct (saved x) as [[[] d]|]; [| |destruct He]; destruct He as [<-|[]]; simpl; [|discriminate].
    rewrite (tidy eq_refl). reflexivity.
Qed.

Lemma leaves world i m : can_leave world i = Some m -> exists e, nth_error (entries world) i = Some e /\
  by_mechanism e = m /\ fate e = Waiting /\ saved e <> None.
Proof.
  unfold can_leave. destruct (nth_error (entries world) i) as [[m' [|d|] day [s|]]|]; try discriminate.
  intros [= ->]. eexists. split; [reflexivity|]. simpl. repeat split; congruence.
Qed.

Lemma arrive_restored world i m : all_tidy world -> can_leave world i = Some m ->
  exists j e, nth_error (flat_map restore (entries world)) j = Some e /\ fate e = Waiting /\
    flat_map restore (entries (arrive world i)) =
    change j (with_fate (Arrived (clock world))) (flat_map restore (entries world)).
Proof.
  intros tidy Hm. destruct (leaves _ _ _ Hm) as [e [Hi [_ [waits on_disk]]]].
  pose proof (tidy e (nth_error_In _ _ Hi)) as is_tidy_e. unfold is_tidy in is_tidy_e.
  destruct (saved e) as [[lost day]|] eqn:Hs; [|congruence].
  assert (lost = false) as -> by (destruct lost; [specialize (is_tidy_e eq_refl); congruence|reflexivity]).
  set (restored :=
    {| by_mechanism := by_mechanism e; fate := Waiting; dated := day; saved := Some (false, day) |}).
  destruct (restore_arrive i (Arrived (clock world)) e restored (entries world) Hi) as [j [Hj Heq]].
  - unfold restore. rewrite Hs, waits. reflexivity.
  - unfold restore. simpl. rewrite Hs. reflexivity.
  - exists j, restored. auto.
Qed.

Lemma tidy_arrive world i m : all_tidy world -> can_leave world i = Some m -> all_tidy (arrive world i).
Proof.
  intros tidy Hm. destruct (leaves _ _ _ Hm) as [e [Hi [_ [waits on_disk]]]].
  unfold all_tidy. simpl. eapply change_tidy; eauto. specialize (tidy e (nth_error_In _ _ Hi)).
  unfold is_tidy in *. simpl.
  destruct (saved e) as [[[] d]|]; [specialize (tidy eq_refl)| |]; congruence.
Qed.

(** What has arrived stays so, whatever happens. *)
Lemma arrived_happen budget world event counts :
  all_tidy world ->
  total (arrived counts) (entries (happen budget world event)) = total (arrived counts) (entries world).
Proof.
  intros tidy. destruct event as [|m|i|day settled| |]; simpl; trivial.
  - destruct (admits budget (device world) (price m)); reflexivity.
  - destruct (nth_error (entries world) i) as [[m [|d|] dated s]|] eqn:Hi; trivial. simpl.
    rewrite (total_change _ _ _ _ _ Hi). unfold arrived at 2 3. simpl. lia.
  - rewrite total_settle, total_map by reflexivity. apply total_ext. intros e _.
    destruct (is_lie_before (device world) day && is_dated_after day e); reflexivity.
  - rewrite total_map. reflexivity.
  - rewrite total_restore. apply total_ext. intros e He. specialize (tidy e He).
    unfold is_tidy, restore, arrived in *.
    destruct (saved e) as [[lost d]|]; cbn.
    + destruct (fate e); cbn; [destruct lost; reflexivity|apply Z.add_0_r|destruct lost; reflexivity].
    + destruct (fate e); [reflexivity|contradiction|reflexivity].
Qed.

Lemma arrived_arrive world i m counts :
  can_leave world i = Some m ->
  total (arrived counts) (entries (arrive world i)) =
  total (arrived counts) (entries world) + if counts (clock world) then price m else 0.
Proof.
  intros Hm. destruct (leaves _ _ _ Hm) as [e [Hi [<- [waits _]]]]. simpl.
  rewrite (total_change _ _ _ _ _ Hi). unfold arrived at 2 3. rewrite waits. simpl. unfold cost. simpl. lia.
Qed.

(** ** What is kept, in memory and on the disk *)

(** What holds of the ledger, and of the one that a crash would leave. *)
Record Kept (budget : Budget) (world : World) : Prop := {
  memory_sound : Sound budget (clock world) (device world) (entries world);
  disk_sound : Sound budget (clock world) (disk world) (flat_map restore (entries world));
  kept_tidy : all_tidy world
}.

Lemma kept_happen budget world event :
  window_days budget <= longest -> Kept budget world -> tells_truth world event ->
  Kept budget (happen budget world event).
Proof.
  intros length [memory_sound disk_sound tidy] truth.
  split; [| |apply tidy_happen, tidy]; destruct event as [|m|i|day settled| |]; simpl; trivial.
  - apply sound_next_day, memory_sound.
  - destruct (admits budget (device world) (price m)) eqn:admitted; [apply sound_draw|]; trivial.
  - destruct (nth_error (entries world) i) as [[m [|d|] dated s]|] eqn:Hi; trivial.
    eapply sound_fate; eauto.
  - apply sound_hear; assumption.
  - apply sound_save, memory_sound.
  - apply sound_next_day, disk_sound.
  - destruct (admits budget (device world) (price m)); trivial.
  - destruct (nth_error (entries world) i) as [[m [|d|] dated s]|] eqn:Hi; trivial. simpl.
    erewrite restore_change; [exact disk_sound|exact Hi|reflexivity].
  - rewrite restore_settle, (restore_move (fun e => is_lie_before (device world) day && is_dated_after day e)).
    assumption.
  - rewrite restore_save. apply sound_save, memory_sound.
  - rewrite restore_twice. assumption.
Qed.

Lemma kept_arrive budget world i m :
  Kept budget world -> can_leave world i = Some m -> Kept budget (arrive world i).
Proof.
  intros [memory_sound disk_sound tidy] Hm. split; [| |eapply tidy_arrive; eauto].
  - destruct (leaves _ _ _ Hm) as [e [Hi [_ [waits _]]]]. eapply sound_fate; eauto.
  - destruct (arrive_restored _ _ _ tidy Hm) as [j [e [Hj [waits ->]]]]. eapply sound_fate; eauto.
Qed.

(** What the ledger has paid in a lifetime. *)
Record Paid (budget : Budget) (world : World) : Prop := {
  memory_sum : lifetime (device world) = total cost (entries world);
  disk_sum : lifetime (disk world) = total cost (flat_map restore (entries world));
  memory_cap : lifetime (device world) <= lifetime_cap budget;
  disk_cap : lifetime (disk world) <= lifetime_cap budget;
  paid_tidy : all_tidy world
}.

Lemma cost_change i f all : total cost (change i (with_fate f) all) = total cost all.
Proof.
  revert i. induction all as [|e all IH]; intros [|i]; simpl; trivial.
  fold (total cost (change i (with_fate f) all)).
  rewrite IH. reflexivity.
Qed.

Lemma paid_happen budget world event : Paid budget world -> Paid budget (happen budget world event).
Proof.
  intros [memory disk memory_cap disk_cap tidy].
  assert (tidy' : all_tidy (happen budget world event)) by (apply tidy_happen, tidy).
  destruct event as [|m|i|day settled| |]; simpl in *; try (split; trivial; fail).
  - destruct (admits budget (device world) (price m)) eqn:admitted; [|split; trivial].
    unfold admits in admitted. apply andb_prop in admitted as [admitted _]. apply Z.leb_le in admitted.
    split; simpl; trivial. rewrite memory. unfold cost at 2. simpl. fold (total cost (entries world)). lia.
  - destruct (nth_error (entries world) i) as [[m [|d|] dated s]|] eqn:Hi; try (split; trivial; fail).
    split; simpl; trivial; [rewrite cost_change; trivial|].
    erewrite restore_change; [exact disk|exact Hi|reflexivity].
  - assert (same : forall amount, lifetime (hear (device world) day amount) = lifetime (device world)).
    { intros. unfold hear. destruct (is_lie_before (device world) day); reflexivity. }
    split; simpl; rewrite ?same; trivial.
    + rewrite total_settle, total_map, memory by reflexivity. apply total_ext. intros e _.
      destruct (is_lie_before (device world) day && is_dated_after day e); reflexivity.
    + rewrite restore_settle.
      rewrite (restore_move (fun e => is_lie_before (device world) day && is_dated_after day e)). assumption.
  - split; simpl; trivial; rewrite ?restore_save, total_map, memory; reflexivity.
  - split; simpl; trivial. rewrite restore_twice. assumption.
Qed.

Lemma paid_arrive budget world i m :
  Paid budget world -> can_leave world i = Some m -> Paid budget (arrive world i).
Proof.
  intros [memory disk memory_cap disk_cap tidy] Hm.
  split; trivial; [| |eapply tidy_arrive; eauto].
  - simpl. rewrite cost_change. assumption.
  - destruct (arrive_restored _ _ _ tidy Hm) as [j [e [_ [_ ->]]]]. rewrite cost_change. assumption.
Qed.

(** ** The theorems *)

(** In a life a server tells the truth about its days. *)
Fixpoint is_truthful (budget : Budget) (world : World) (life : Life) : Prop :=
  match life with
  | Stop => True
  | Then event next => tells_truth world event /\ is_truthful budget (happen budget world event) next
  | Send i next =>
      match can_leave world i with
      | Some _ => forall symbol, is_truthful budget (arrive world i) (next symbol)
      | None => is_truthful budget world (next 0)
      end
  end.

(** Two users are neighbours of a window if their rewards are the same for each report that arrives on another
    day. All rewards of the window may differ. *)
Definition differ_within (first last : Z) (user user' : User) : Prop :=
  forall day seen, day < first \/ last < day -> user day seen = user' day seen.

(** The reports that arrive in a window of days tell at most its cap, if the server tells its day truthfully:
    whatever else it does, whatever is lost, and wherever the device crashes. *)
Theorem window_is_private budget first life user user' test start :
  0 <= window budget -> window_days budget <= longest -> 0 <= start ->
  let last := first + (window_days budget - 1) in
  is_truthful budget (new_device start) life ->
  differ_within first last user user' ->
  (chance budget user test (new_device start) [] life <=
   exp (nats (window budget)) * chance budget user' test (new_device start) [] life)%R.
Proof.
  intros positive length present last truth agree. rewrite <- (Z.sub_0_r (window budget)) at 1.
  apply (composition budget (fun world life => Kept budget world /\ is_truthful budget world life)
    (fun world => total (arrived (is_within first last)) (entries world))
    (window budget) (is_within first last)).
  - intros world l [[sound _ _] _]. apply sound.
  - intros world event next [kept [here there]].
    split; [split; [apply kept_happen|]|apply arrived_happen, kept]; assumption.
  - intros world i next [kept truthful]. simpl in truthful. destruct (can_leave world i) as [m|] eqn:Hm.
    + split; [split; [eapply kept_arrive; eauto|auto]|apply arrived_arrive, Hm].
    + split; assumption.
  - intros day seen outside. apply agree. unfold is_within in outside.
    destruct (Z.leb_spec first day), (Z.leb_spec day last); simpl in *; lia || discriminate.
  - split; [|assumption].
    split; [| |intros e []]; (split; simpl; intros; try lia; tauto).
Qed.

(** All reports of a life tell at most the cap of a lifetime. No day plays a part, so a server may lie about it.
    The two users need have nothing in common. *)
Theorem lifetime_is_private budget life user user' test start :
  0 <= lifetime_cap budget ->
  (chance budget user test (new_device start) [] life <=
   exp (nats (lifetime_cap budget)) * chance budget user' test (new_device start) [] life)%R.
Proof.
  intros positive. rewrite <- (Z.sub_0_r (lifetime_cap budget)) at 1.
  apply (composition budget (fun world _ => Paid budget world)
    (fun world => total (arrived (fun _ => true)) (entries world)) (lifetime_cap budget) (fun _ => true)).
  - intros world l [memory _ cap _ _]. rewrite memory in cap. apply Z.le_trans with (2 := cap). apply total_le.
    intros e _. pose proof (cost_nonnegative e). unfold arrived. destruct (fate e); lia.
  - intros world event next paid. split; [apply paid_happen|apply arrived_happen]; apply paid.
  - intros world i next paid. destruct (can_leave world i) as [m|] eqn:Hm; [|assumption].
    split; [intros _; eapply paid_arrive; eauto|exact (arrived_arrive _ _ _ (fun _ => true) Hm)].
  - discriminate.
  - split; simpl; try lia. intros e [].
Qed.

End Life.
