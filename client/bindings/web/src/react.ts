// For React: a provider that starts the client once, in browsers only, and a hook that gives the arm to show.

import {
  type ReactElement,
  type ReactNode,
  createContext,
  createElement,
  useCallback,
  useContext,
  useEffect,
  useMemo,
  useState,
  useSyncExternalStore,
} from "react";

import type { Bandana, Choice, Experiment } from "./index.js";

type Start = () => Promise<Bandana>;

const Client = createContext<Bandana | null>(null);
const started = new WeakMap<Start, Promise<Bandana>>();

/**
 * Starts a client for the components below it, once for each function `start`, however often React mounts it.
 * Nothing starts while a server renders. If the client can't start, `onError` hears the reason, by default the
 * console, and every component shows its default.
 */
export function ClientProvider({
  start,
  onError = console.warn,
  children,
}: {
  start: Start;
  onError?: (error: unknown) => void;
  children?: ReactNode;
}): ReactElement {
  const [client, setClient] = useState<Bandana | null>(null);
  // Those of the first rendering: an inline function is another one each time.
  const [first] = useState(() => ({ start, onError }));
  useEffect(() => {
    let isMounted = true;
    const starting = started.get(first.start) ?? first.start();
    started.set(first.start, starting);
    starting.then(
      (client) => isMounted && setClient(client),
      (error: unknown) => isMounted && first.onError(error),
    );
    return () => {
      isMounted = false;
    };
  }, [first]);
  return createElement(Client.Provider, { value: client }, children);
}

/** The client of the provider above, or `null` until it has started. */
export function useClient(): Bandana | null {
  return useContext(Client);
}

/**
 * The arm of an experiment, or `null` while there is none, also when no experiment can have this name: then
 * show your default. The component is rendered again when there is one. The arm stays the same until its
 * attribution window ends.
 */
export function useChoice(name: string): Choice | null {
  const client = useClient();
  const experiment = useMemo(() => experimentOf(client, name), [client, name]);
  const subscribe = useCallback(
    (listener: () => void) => {
      if (client === null || experiment === null) {
        return () => undefined;
      }
      const end = experiment.onChange(listener);
      // Another tab that has the store tells its arm once it is asked.
      client.prepare(name);
      return end;
    },
    [client, experiment, name],
  );
  const isReady = useSyncExternalStore(
    subscribe,
    () => experiment?.whyNotReady() === null,
    () => false,
  );
  return isReady && experiment !== null ? experiment.choose() : null;
}

/** `null` for a name that no experiment can have, and of a client that is closed: a page goes on. */
function experimentOf(client: Bandana | null, name: string): Experiment | null {
  try {
    return client?.experiment(name) ?? null;
  } catch {
    return null;
  }
}
