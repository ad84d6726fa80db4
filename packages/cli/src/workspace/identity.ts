/** Who a repository is on the platform, from the URL of its `origin`, on whatever host. */
export type Identity = {
  /** `owner/repo` in lower case. */
  readonly name: string;
  /** The remote without credentials. */
  readonly displayUrl: string;
  /** `http://host:port` of an http(s) remote. */
  readonly origin: string | undefined;
};

const SEGMENT = /^[a-z0-9][a-z0-9._-]*$/;

/**
 * Reads https, ssh, `git@host:owner/repo` and file remotes: the last two segments of the path are owner and
 * repository. Undefined when there are no two, or when one has characters that no platform takes.
 */
export function identityOf(remote: string): Identity | undefined {
  const text = remote.trim();
  const scp = /^(?:[^@/\s]+@)?([^:/\s]+):(?!\/\/)(.+)$/.exec(text);
  let path: string;
  let displayUrl = text;
  let origin: string | undefined;
  if (text.includes("://")) {
    let url: URL;
    try {
      url = new URL(text);
    } catch {
      return undefined;
    }
    path = url.pathname;
    if (url.protocol === "http:" || url.protocol === "https:") origin = url.origin;
    url.username = "";
    url.password = "";
    displayUrl = url.toString();
  } else if (scp !== null) path = scp[2] ?? "";
  else path = text;
  const [owner, repository] = path
    .replace(/\/+$/, "")
    .replace(/\.git$/i, "")
    .toLowerCase()
    .split("/")
    .filter((segment) => segment !== "")
    .slice(-2);
  if (owner === undefined || repository === undefined) return undefined;
  if (!SEGMENT.test(owner) || !SEGMENT.test(repository)) return undefined;
  return { name: `${owner}/${repository}`, displayUrl, origin };
}
