// Confines an exception to the part of the page that threw it. Data from an agent may have a form that no component
// expects; the rest of the page must go on.

import { Component, type ComponentChildren } from 'preact';

interface ErrorBoundaryProps {
  /** The data that the children show. Other data is tried again. */
  of: unknown;
  fallback(): ComponentChildren;
  children: ComponentChildren;
}

interface ErrorBoundaryState {
  failure?: { of: unknown };
}

export class ErrorBoundary extends Component<ErrorBoundaryProps, ErrorBoundaryState> {
  override state: ErrorBoundaryState = {};

  override componentDidCatch(error: unknown): void {
    console.warn('innkeeper: a part of the page could not be shown', error);
    this.setState({ failure: { of: this.props.of } });
  }

  override render(): ComponentChildren {
    const { failure } = this.state;
    return failure && Object.is(failure.of, this.props.of) ? this.props.fallback() : this.props.children;
  }
}
