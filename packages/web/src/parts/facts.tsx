import type { ReactElement, ReactNode } from "react";

/** Short answers in a row: a name and a value each, with a remark below. */
export function Facts({ children }: { readonly children: ReactNode }): ReactElement {
  return <dl className="facts">{children}</dl>;
}

export function Fact(props: {
  readonly name: string;
  readonly children: ReactNode;
  readonly remark?: ReactNode;
}): ReactElement {
  return (
    <div>
      <dt>{props.name}</dt>
      <dd>
        <span className="value">{props.children}</span>
        {props.remark === undefined ? null : <span className="remark">{props.remark}</span>}
      </dd>
    </div>
  );
}
