"""The pages. Each is a function of a Session, drawn below the bar that app.py puts above all of them.

    def requests_page(session: Session) -> None:
        _table(session)

    @st.fragment(run_every=1.0)
    def _table(session: Session) -> None:
        look = session.look()                      # one moment: the same as the canvas shows
        if not look.current:
            return                                 # nothing may be shown as now: the bar says why
        rows = look.read(holders)                  # anything of the PoolState at that moment
        ended = look.feed.ended(50, look.upto)     # what had ended by then; lines() are sentences
        points = look.rows                         # history.ROW up to the moment, a numpy array
        records = look.feed.past.records(a, b)     # the step records in (a, b]
        session.go(seq)                            # or go_to_step, go_live, jump, play, pause
        session.select(request="cmpl-1", block=7)  # shared with the canvas; session.selection

A page is listed in PAGES of app.py. Do not hold a Look or a PoolState over a rerun.
"""
