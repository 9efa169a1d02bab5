"""What the incident puts on the path of its Airflow, as users do with handlers of their own."""
