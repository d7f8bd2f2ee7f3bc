"""The live and recorded view of the block pool: a Streamlit app that folds the event stream."""
